// yoke/train/optim/clip_grad.h -- clips gradients without waiting for the device.
#pragma once

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct ClipGradNormOptions {
  double max_norm = 0;              ///< Must be set.
  double norm_type = 2;             ///< Infinity for the largest absolute value.
  bool error_if_nonfinite = false;  ///< Waits for the device.
};

/// Scales all gradients together by max_norm / (norm + 1e-6) if that is below 1, in place, like PyTorch's
/// clip_grad_norm_. Call it between backward and step; with a GradScaler, after its unscale.
///
/// Shapes   returns the norm before clipping, 0-dim, on the first gradient's device. Reading it waits for the device.
///          It is 0 if no parameter has a gradient.
/// Devices  foreach kernels, one call for each (device, dtype); a norm or factor goes to a different device
/// asynchronously. Tied     parameters count once (see distinct). Ranks    uses only this rank's gradients, which under
/// DistributedDataParallel are the same on all ranks. If each
///          rank has a part of every parameter (FullyShardedDataParallel), it is the norm of all parts, and the call is
///          collective.
/// Errors   kInvalidArgument: max_norm or norm_type out of range, a sparse gradient (named); kFailedPrecondition: the
///          norm is not finite, with error_if_nonfinite, before anything is changed.
at::Tensor clip_grad_norm(const NamedTensors& parameters, const ClipGradNormOptions& options);

/// The two steps of clip_grad_norm: the norm, and the scaling by a given norm.
at::Tensor grad_norm(const NamedTensors& parameters, double norm_type = 2);
void scale_grads_to_norm(const NamedTensors& parameters, double max_norm, const at::Tensor& norm);

/// The norms of all parameters and of all their gradients, for a log: `run.log("grad_norm", norms(...).gradients)`.
///
/// Shapes   0-dim, on the device of the first of them. Reading them waits for the device.
/// Ranks    as clip_grad_norm: equal on all ranks; collective, with one all-reduce, if each rank has a part of every
///          parameter (`net.parameters()` of FullyShardedDataParallel).
/// Errors   those of grad_norm.
struct Norms {
  at::Tensor parameters, gradients;
};
Norms norms(const NamedTensors& parameters, double norm_type = 2);

/// Clamps every element of every gradient to [-max_value, max_value], in place, like PyTorch's clip_grad_value_.
/// Errors  kInvalidArgument: max_value negative or NaN, a sparse gradient (named).
void clip_grad_value(const NamedTensors& parameters, double max_value);

}  // namespace yoke::train
