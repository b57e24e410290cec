#include "fakes/tensor_bytes.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace yoke::fakes {
namespace {

std::atomic<int64_t> held = 0, peak = 0;

struct Block {
  at::DataPtr data;
  int64_t num_bytes;
};

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}

  at::DataPtr allocate(size_t num_bytes) override {
    auto* block = new Block{inner_.allocate(num_bytes), static_cast<int64_t>(num_bytes)};
    const int64_t now = held += block->num_bytes;
    for (int64_t most = peak; most < now && !peak.compare_exchange_weak(most, now);) {
    }
    return {block->data.get(), block, &release, block->data.device()};
  }

  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }

 private:
  static void release(void* context) {
    const auto* block = static_cast<Block*>(context);
    held -= block->num_bytes;
    delete block;
  }

  c10::Allocator& inner_;
};

}  // namespace

void count_tensor_bytes() {
  static CountingAllocator allocator(*c10::GetCPUAllocator());
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
}

int64_t tensor_bytes() { return held; }
int64_t peak_tensor_bytes() { return peak; }
void reset_peak_tensor_bytes() { peak = held.load(); }

}  // namespace yoke::fakes
