// yoke/train/data/detail/device_copies.h -- copies batches to a GPU while the GPU works. Internal.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <optional>

#include "yoke/train/data/collate.h"

namespace yoke::train::detail {

/// Copies one batch at a time to a GPU, on a separate stream. One thread makes all calls.
class DeviceCopies {
 public:
  using Batch = std::function<void(const TensorVisitor&)>;  ///< Calls a function for each tensor of a batch.

  explicit DeviceCopies(c10::Device device);

  /// Replaces the batch's tensors by copies, which are in progress until finish().
  void start(const Batch& batch);

  /// Makes the current stream wait for the copies of the batch that was started last. Keeps the memory of the copies
  /// until the current stream no longer uses it.
  void finish(const Batch& batch);

 private:
  const c10::Device device_;
  const c10::impl::VirtualGuardImpl streams_;
  const c10::Stream stream_;
  std::optional<c10::Event> copied_;
};

}  // namespace yoke::train::detail
