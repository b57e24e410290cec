// yoke/train/detail/step_counter.h -- finds the steps of a training from those of its optimizers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace yoke::train::detail {

/// tools/python/yoke_steps.py follows the same rule.
class StepCounter {
 public:
  /// Called when an optimizer has stepped. Returns the number of the training's step, from 0, if that ends it.
  std::optional<int64_t> end_of(const void* optimizer) {
    const bool has_stepped_twice = std::find(others_.begin(), others_.end(), optimizer) != others_.end();
    if (leader_ != nullptr && optimizer != leader_ && !has_stepped_twice) {
      others_.push_back(optimizer);
      return std::nullopt;
    }
    leader_ = optimizer;
    others_.clear();
    return count_++;
  }

 private:
  const void* leader_ = nullptr;
  std::vector<const void*> others_;  ///< Optimizers that have stepped since the leader did.
  int64_t count_ = 0;
};

}  // namespace yoke::train::detail
