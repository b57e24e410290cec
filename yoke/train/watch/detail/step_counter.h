// yoke/train/watch/detail/step_counter.h -- derives the training's step number from the steps of its optimizers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace yoke::train::detail {

/// Counts the steps of a training (see end_step in step_end.h). tools/python/yoke_steps.py follows the same rule.
class StepCounter {
 public:
  /// Called after each step of an optimizer. If that ends a step of the training, returns its number, counted from 0.
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
  std::vector<const void*> others_;  ///< Optimizers that have stepped after the leader's last step.
  int64_t count_ = 0;
};

}  // namespace yoke::train::detail
