// yoke/train/record/detail/small_kernels.h -- loops of our own for float tensors that are so small that libtorch's
// kernels spend most of their time on preparation.
//
// Each function returns null where its loop would not have the bits of libtorch's kernel. Where the bits depend on an
// order of additions or on a function such as exp(), the loop and the kernel first compute the same numbers, and are
// compared.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace yoke::train::detail {

inline const float* values(const at::Tensor& tensor) {
  return static_cast<const float*>(tensor.unsafeGetTensorImpl()->data());
}
inline float* mutable_values(const at::Tensor& tensor) {
  return static_cast<float*>(tensor.unsafeGetTensorImpl()->mutable_data());
}

// REQUIRES, of all functions: contiguous floats.

/// to = max(x, 0)
std::function<void()> small_relu(const at::Tensor& to, const at::Tensor& x);

/// to = gradient where x > threshold, else 0
std::function<void()> small_threshold_backward(const at::Tensor& to, const at::Tensor& gradient, const at::Tensor& x,
                                               float threshold);

/// to = the sum over the rows of x [rows, columns]
std::function<void()> small_sum_of_rows(const at::Tensor& to, const at::Tensor& x);

/// to = log_softmax of each row of x [rows, columns]
std::function<void()> small_log_softmax(const at::Tensor& to, const at::Tensor& x);

/// to = the gradient of that, whose result was y
std::function<void()> small_log_softmax_backward(const at::Tensor& to, const at::Tensor& gradient, const at::Tensor& y);

/// to = the mean negative log likelihood, x [rows, classes], of the classes `target` [rows], and num_counted = the
/// number of those that are not `ignored`. `theirs` does the same, and is called if a target is no class, which is an
/// error.
std::function<void()> small_nll_mean(const at::Tensor& to, const at::Tensor& num_counted, const at::Tensor& x,
                                     const at::Tensor& target, int64_t ignored, std::function<void()> theirs);

/// to = the gradient of x, where that of the mean is one number
std::function<void()> small_nll_mean_backward(const at::Tensor& to, const at::Tensor& gradient,
                                              const at::Tensor& target, int64_t ignored, const at::Tensor& num_counted,
                                              std::function<void()> theirs);

}  // namespace yoke::train::detail
