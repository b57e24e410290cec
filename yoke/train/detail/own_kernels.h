// yoke/train/detail/own_kernels.h -- kernels for operators on a CPU that libtorch computes slowly, with the same bits.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace yoke::train::detail {

/// aten::max_pool2d_with_indices. libtorch 2.11 to 2.15 compares one number after the other if channels are planes
/// (NCHW), with a branch for each that a processor cannot predict: 5 ns for each number of the input. Of channels_last,
/// both have vectors of channels, and libtorch takes 1.1 to 5.5 times as long. What the loops (max_pool.h) do not
/// handle is computed by libtorch.
std::tuple<at::Tensor, at::Tensor> max_pool2d(const at::Tensor& x, at::IntArrayRef window, at::IntArrayRef stride,
                                              at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode);

/// aten::max_pool2d_with_indices_backward, of channels_last tensors and windows that do not overlap: libtorch first
/// fills all gradients with zeros, then adds to one number after the other.
at::Tensor max_pool2d_backward(const at::Tensor& gradient, const at::Tensor& x, at::IntArrayRef window,
                               at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                               bool ceil_mode, const at::Tensor& index);

/// aten::bernoulli_.float, which dropout calls. On processors that are not Intel's, libtorch takes 6 ns for each
/// number: two draws of its generator, a Mersenne Twister, one after the other. Here each step is a loop over many
/// draws, and the generator ends in the same state. On Intel's, libtorch asks MKL for other numbers, and computes it
/// itself here, too (ATen/native/cpu/DistributionKernels.cpp).
at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator);

/// Gives libtorch these functions as its kernels for CPUs, unless the environment says YOKE_KERNELS=libtorch. Returns
/// whether it has. Each program that links an optimizer or cpu_speed.cpp does it before main, because threads read the
/// table of kernels without a lock.
bool replace_kernels();

}  // namespace yoke::train::detail
