// yoke/train/run/detail/replica_hash.h -- a hash of a tensor's bits, computed where the tensor is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace yoke::train::detail {

/// The sum of all elements' bits as integers, each times an odd number that belongs to its position, modulo 2^64. So
/// any change of a single element changes it, for certain, and any other change (of several elements, of their places)
/// with probability 1 - 2^-31 or more. -0.0 and 0.0, and two NaNs with different bits, are different.
///
/// Shapes   returns an int64 scalar on the tensor's device, without waiting for it. Equal tensors with equal strides
/// have
///          equal hashes, also on different kinds of devices.
/// Devices  on the CPU, one pass over the memory on this thread. Elsewhere, three kernels, and four more for a tensor
///          of over 4096 elements; a temporary int64 per element, of 64 MiB at most.
at::Tensor replica_hash(const at::Tensor& tensor);

/// The same by operations of libtorch, which every device has.
at::Tensor replica_hash_by_operations(const at::Tensor& tensor);

}  // namespace yoke::train::detail
