// yoke/train/optim/detail/options.h -- for the optimizers: checks the ranges of options, and reads options from Python
// by name.
#pragma once

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

inline void check_finite(const char* optimizer, const char* option, double value) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be a finite number", optimizer, option, value);
}

inline void check_not_negative(const char* optimizer, const char* option, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be a finite number, and not negative", optimizer, option,
              value);
}

inline void check_below_one(const char* optimizer, const char* option, double value) {
  if (value >= 0 && value < 1) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be in [0, 1)", optimizer, option, value);
}

/// Reads the options that are present; missing options keep their values.
class OptionReader {
 public:
  OptionReader(const char* optimizer, const OptionMap& options) : optimizer_(optimizer), options_(options) {}

  /// Errors kInvalidArgument naming the option, if it has a different type.
  template <class Value>
  void read(const char* name, Value& value) const {
    const auto found = options_.find(name);
    if (found == options_.end()) return;
    const auto* given = std::get_if<Value>(&found->second);
    if (given == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "{}: option '{}' has the wrong type", optimizer_, name);
    }
    value = *given;
  }

 private:
  const char* optimizer_;
  const OptionMap& options_;
};

}  // namespace yoke::train
