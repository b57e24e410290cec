#include "yoke/train/data/detail/batch_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::train::detail {
namespace {

// When the last tensor of a block is destroyed, the block returns to this pool. Fresh memory would cost a page fault
// for every 4 KiB of every batch. Tensors hold the pool, so the pool may outlive its loader.
class Pool : public BatchMemory, public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(int64_t max_kept) { kept_.reserve(static_cast<size_t>(max_kept)); }

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) override {
    const auto num_bytes = static_cast<size_t>(bytes_of(sizes, dtype));
    auto block = take(num_bytes);
    if (!block.bytes) {
      throw Error(ErrorCode::kUnavailable, "loader: no memory for a batch [{}] {}", fmt::join(sizes, ", "),
                  c10::toString(dtype));
    }
    void* const data = block.bytes.get();
    // std::function must be copyable, so the deleter uses a shared_ptr although the block has one owner.
    return at::from_blob(
        data, sizes, strides_of(sizes, format),
        [pool = shared_from_this(), guard = std::shared_ptr<Block>(new Block(std::move(block)))](void*) {
          pool->give(std::move(*guard));
        },
        at::TensorOptions(dtype));
  }

  static int64_t bytes_of(at::IntArrayRef sizes, at::ScalarType dtype) {
    int64_t num_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : sizes) {
      if (size < 0 || __builtin_mul_overflow(num_bytes, size, &num_bytes)) {
        throw Error(ErrorCode::kInvalidArgument, "loader: a tensor cannot have the sizes [{}]", fmt::join(sizes, ", "));
      }
    }
    return num_bytes;
  }

 private:
  static constexpr auto kAlignment = std::align_val_t(64);
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    size_t size = 0;
  };

  // The strides of a batch do not depend on its number of rows, even if a dimension is 1.
  static std::vector<int64_t> strides_of(at::IntArrayRef sizes, at::MemoryFormat format) {
    if (format == at::MemoryFormat::ChannelsLast) {
      return {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]};
    }
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
    return strides;
  }

  // Returns a kept block of at most twice the size, or else a new block. If memory is exhausted, the block is empty.
  Block take(size_t num_bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (auto& block : kept_) {
        if (block.size < num_bytes || block.size / 2 > num_bytes) continue;
        std::swap(block, kept_.back());
        auto taken = std::move(kept_.back());
        kept_.pop_back();
        return taken;
      }
    }
    const size_t size = std::max<size_t>(num_bytes, 1);
    auto* bytes = static_cast<std::byte*>(::operator new(size, kAlignment, std::nothrow));
    return {std::unique_ptr<std::byte, Free>(bytes), size};
  }

  void give(Block block) noexcept {
    const std::lock_guard lock(mutex_);
    if (kept_.size() == kept_.capacity()) {
      if (kept_.empty()) return;
      kept_.erase(kept_.begin());  // the least recently used block
    }
    kept_.push_back(std::move(block));
  }

  std::mutex mutex_;
  std::vector<Block> kept_;
};

// libtorch's host allocator knows when copies to the GPU have ended; Pool does not.
class PinnedMemory : public BatchMemory {
 public:
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) override {
    return at::empty(sizes, at::TensorOptions(dtype).pinned_memory(true), format);
  }
};

}  // namespace

std::shared_ptr<BatchMemory> batch_memory(int64_t max_kept) { return std::make_shared<Pool>(max_kept); }
std::shared_ptr<BatchMemory> pinned_batch_memory() { return std::make_shared<PinnedMemory>(); }

}  // namespace yoke::train::detail
