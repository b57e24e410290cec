// yoke/train/optim/clip_grad.h -- gradients kept within bounds, without waiting for the device.
#pragma once

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct ClipGradNormOptions {
  double max_norm = 0;              ///< Has to be given.
  double norm_type = 2;             ///< Infinity for the largest absolute value.
  bool error_if_nonfinite = false;  ///< Waits for the device.
};

/// Scales all gradients together by max_norm / (norm + 1e-6) where that is below 1, in place: PyTorch's
/// clip_grad_norm_. Between backward and step; with a GradScaler after its unscale.
///
/// Shapes   returns the norm before clipping, 0-dim, on the first gradient's device: read it when the device has come
///          that far (or never). 0 when no parameter has a gradient.
/// Devices  foreach kernels, one call for each (device, dtype); a norm or factor goes to another device asynchronously.
/// Tied     parameters count once (see distinct).
/// Ranks    of this rank's gradients alone: under DistributedDataParallel all ranks have the same. Where each rank has
///          a part of every parameter (FullyShardedDataParallel) it is the norm of all parts, and collective.
/// Errors   kInvalidArgument: max_norm or norm_type out of range, a sparse gradient (named); kFailedPrecondition with
///          error_if_nonfinite, before anything is changed.
at::Tensor clip_grad_norm(const NamedTensors& parameters, const ClipGradNormOptions& options);

/// Both halves of it: the norm, and scaling by a norm.
at::Tensor grad_norm(const NamedTensors& parameters, double norm_type = 2);
void scale_grads_to_norm(const NamedTensors& parameters, double max_norm, const at::Tensor& norm);

/// Puts every element of every gradient into [-max_value, max_value], in place: PyTorch's clip_grad_value_.
/// Errors  kInvalidArgument: max_value negative or NaN, a sparse gradient (named).
void clip_grad_value(const NamedTensors& parameters, double max_value);

}  // namespace yoke::train
