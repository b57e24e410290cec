// yoke/train/detail/step_watch.h -- tells which parameters optimizers have changed by their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace yoke::train::detail {

/// Who has averaged the gradients of a step over ranks.
enum class Mean : uint8_t { kOfCaller, kOfStep };

/// During its lifetime, calls a function with the parameters of each step of an optimizer of yoke::train, on the thread
/// that steps. The function must not throw.
class StepWatch {
 public:
  using Stepped = std::function<void(at::TensorList parameters, Mean mean)>;
  explicit StepWatch(Stepped stepped);
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

 private:
  friend void report_step(at::TensorList parameters, Mean mean);
  const Stepped stepped_;
};

/// Called by optimizers with the parameters that they have changed by their gradients.
void report_step(at::TensorList parameters, Mean mean = Mean::kOfCaller);

}  // namespace yoke::train::detail
