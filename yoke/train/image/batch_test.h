// yoke/train/image/batch_test.h -- makes requests for batches without a loader, for tests.
#pragma once

#include <ATen/ops/empty.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "yoke/train/data/source.h"

namespace yoke::train {

class PlainMemory final : public BatchMemory {
 public:
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) override {
    return at::empty(sizes, at::TensorOptions(dtype).memory_format(format));
  }
};

/// Returns a request for `samples`, which must outlive the request. A sample that cannot be read is an error.
inline BatchRequest request_for(std::span<const int64_t> samples, BatchRequest::Options options = {}) {
  options.memory = std::make_shared<PlainMemory>();
  if (!options.on_bad_sample) options.on_bad_sample = [](int64_t, const std::exception&) { throw; };
  return {samples, std::move(options)};
}

}  // namespace yoke::train
