#include "yoke/train/data/detail/device_copies.h"

#include <c10/core/StreamGuard.h>

namespace yoke::train::detail {

DeviceCopies::DeviceCopies(c10::Device device)
    : device_(device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice()),
      streams_(device.type()),
      stream_(streams_.getStreamFromGlobalPool(device_)) {}

void DeviceCopies::start(const Batch& batch) {
  const c10::StreamGuard guard(stream_);
  batch([&](at::Tensor& tensor) {
    // A source or a collate function may have made the tensor in memory that is not pinned; copying it would block.
    if (!tensor.is_pinned() && tensor.device().is_cpu()) tensor = tensor.pin_memory();
    tensor = tensor.to(device_, /*non_blocking=*/true);
  });
  copied_.emplace(device_.type());
  copied_->record(stream_);
}

void DeviceCopies::finish(const Batch& batch) {
  const auto current = streams_.getStream(device_);
  copied_->block(current);
  // The copies were allocated on the copy stream. The allocator must know that the current stream uses them too.
  batch([&](at::Tensor& tensor) { streams_.recordDataPtrOnStream(tensor.storage().data_ptr(), current); });
}

}  // namespace yoke::train::detail
