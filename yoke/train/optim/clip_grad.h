// yoke/train/optim/clip_grad.h -- clips gradients without waiting for the device.
#pragma once

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct ClipGradNormOptions {
  double max_norm = 0;              ///< Must be set.
  double norm_type = 2;             ///< Exponent of the norm; infinity for the largest absolute value.
  bool error_if_nonfinite = false;  ///< If true, waits for the device, and throws if the norm is not finite.
};

/// Multiplies all gradients by max_norm / (norm + 1e-6), in place, if that factor is below 1, like PyTorch's
/// clip_grad_norm_. Call it between backward and step; with a GradScaler, after its unscale().
///
/// Shapes   returns the norm before clipping, 0-dim, on the first gradient's device. Reading it waits for the device.
///          It is 0 if no parameter has a gradient.
/// Devices  one call of foreach kernels for each (device, dtype); copies between devices are asynchronous.
/// Tied     a tied parameter counts once (see distinct in named_tensors.h).
/// Ranks    uses only this rank's gradients, which under DistributedDataParallel are the same on all ranks. If each
///          rank has a part of every parameter (FullyShardedDataParallel), the norm covers the parts of all ranks, and
///          the call is collective.
/// Errors   kInvalidArgument: max_norm or norm_type is out of range, or a gradient is sparse (names it);
///          kFailedPrecondition: the norm is not finite, with error_if_nonfinite; or the gradients are no means yet,
///          because the step of their optimizer averages them (GradientMean::kInStep), also in the functions below that
///          change gradients. Then nothing is changed.
at::Tensor clip_grad_norm(const NamedTensors& parameters, const ClipGradNormOptions& options);

/// clip_grad_norm as two functions: one computes the norm, the other scales the gradients by a given norm.
at::Tensor grad_norm(const NamedTensors& parameters, double norm_type = 2);
void scale_grads_to_norm(const NamedTensors& parameters, double max_norm, const at::Tensor& norm);

/// The norms of all parameters and of all their gradients, for a log: `run.log("grad_norm", norms(...).gradients)`.
///
/// Shapes   0-dim, on the device of the first parameter. Reading them waits for the device.
/// Ranks    equal on all ranks if the gradients are. If each rank has a part of every parameter (`net.parameters()` of
///          FullyShardedDataParallel), the norms cover all parts, and the call is collective, with one all-reduce.
/// Errors   those of grad_norm.
struct Norms {
  at::Tensor parameters, gradients;
};
Norms norms(const NamedTensors& parameters, double norm_type = 2);

/// Clamps every element of every gradient to [-max_value, max_value], in place, like PyTorch's clip_grad_value_.
/// Errors  kInvalidArgument: max_value is negative or NaN, or a gradient is sparse (names it).
void clip_grad_value(const NamedTensors& parameters, double max_value);

}  // namespace yoke::train
