// yoke/train/detail/averaged_in_step.h -- marks parameters whose gradients are averaged by the step of their optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace yoke::train::detail {

enum class InStep : uint8_t { kNot, kByMessages, kInSharedMemory };

/// During its lifetime, `parameter` is marked, unless another object marks it after this one. If `place` is defined,
/// each gradient moves there as soon as autograd has it: the parameter's gradient is then this tensor, which has the
/// parameter's shape and dtype.
class AveragedInStep {
 public:
  AveragedInStep(at::Tensor parameter, const at::Tensor& place, InStep how);
  ~AveragedInStep();
  AveragedInStep(const AveragedInStep&) = delete;
  AveragedInStep& operator=(const AveragedInStep&) = delete;

 private:
  const at::Tensor parameter_;
  const void* hook_ = nullptr;  ///< This object's.
};

/// Whether and how the step of its optimizer averages the gradient of `parameter`.
InStep averaging_in_step(const at::Tensor& parameter);

}  // namespace yoke::train::detail
