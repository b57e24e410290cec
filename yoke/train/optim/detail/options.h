// yoke/train/optim/detail/options.h -- for the optimizers: checks the ranges of options, and reads options from Python
// by name. Includes the functions of OptimizerWith, which each optimizer instantiates for its own options.
#pragma once

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

inline void check_finite(const std::string& optimizer, const char* option, double value) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be a finite number", optimizer, option, value);
}

inline void check_not_negative(const std::string& optimizer, const char* option, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be a finite number, and not negative", optimizer, option,
              value);
}

inline void check_below_one(const std::string& optimizer, const char* option, double value) {
  if (value >= 0 && value < 1) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: {} {} must be in [0, 1)", optimizer, option, value);
}

/// Reads the options that are present; missing options keep their values.
class OptionReader {
 public:
  OptionReader(const std::string& optimizer, const OptionMap& options) : optimizer_(optimizer), options_(options) {}

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
  const std::string& optimizer_;
  const OptionMap& options_;
};

template <class Options>
OptimizerWith<Options>::OptimizerWith(Traits traits, const std::vector<ParameterGroup<Options>>& groups,
                                      std::vector<Field> fields)
    : Optimizer(std::move(traits), parameters_of(groups)), fields_(std::move(fields)) {
  for (const auto& group : groups) {
    OptimizerWith::check(group.options);
    options_.push_back(group.options);
  }
}

template <class Options>
Options OptimizerWith<Options>::options(size_t group) const {
  check_group(group);
  auto options = options_[group];
  options.lr = lr(group);
  return options;
}

template <class Options>
void OptimizerWith<Options>::check(const Options& options) const {
  for (const auto& field : fields_) {
    if (const auto* number = std::get_if<double Options::*>(&field.member)) {
      field.check(name(), field.name, options.**number);
    } else if (const auto* betas = std::get_if<std::array<double Options::*, 2>>(&field.member)) {
      field.check(name(), "beta1", options.*(*betas)[0]);
      field.check(name(), "beta2", options.*(*betas)[1]);
    }
  }
}

template <class Options>
std::vector<at::Tensor> OptimizerWith<Options>::decayed_gradients(Batch& batch, bool is_decoupled) const {
  const auto& options = options_[batch.group];
  auto gradients = options.maximize ? at::_foreach_neg(batch.gradients) : batch.gradients;
  if (options.weight_decay == 0) return gradients;
  if (!is_decoupled) return at::_foreach_add(gradients, batch.parameters, options.weight_decay);
  at::_foreach_mul_(batch.parameters, 1 - batch.lr * options.weight_decay);
  return gradients;
}

template <class Options>
OptionMap OptimizerWith<Options>::options_of(size_t group) const {
  OptionMap map;
  const auto add = [&, &options = options_[group]](const char* key, auto member) {
    if constexpr (requires { options.*member; }) {
      map[key] = options.*member;
    } else {
      map[key] = std::vector{options.*member[0], options.*member[1]};
    }
  };
  for (const auto& field : fields_) std::visit([&](auto member) { add(field.name, member); }, field.member);
  return map;
}

template <class Options>
void OptimizerWith<Options>::set_options(size_t group, const OptionMap& map) {
  auto options = options_[group];
  const OptionReader reader(name(), map);
  const auto read = [&](const char* key, auto member) {
    if constexpr (requires { options.*member; }) {
      reader.read(key, options.*member);
    } else {
      std::vector<double> betas{options.*member[0], options.*member[1]};
      reader.read(key, betas);
      if (betas.size() != 2) throw Error(ErrorCode::kInvalidArgument, "{}: betas are {}, not 2", name(), betas.size());
      options.*member[0] = betas[0];
      options.*member[1] = betas[1];
    }
  };
  for (const auto& field : fields_) std::visit([&](auto member) { read(field.name, member); }, field.member);
  check(options);
  options_[group] = options;
}

}  // namespace yoke::train
