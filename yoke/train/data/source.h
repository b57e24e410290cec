// yoke/train/data/source.h -- what a loader asks its source for: the samples of one batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "yoke/train/data/sample_random.h"

namespace yoke::train {

/// Allocates tensors for batches. The memory of a batch is reused when its last tensor is destroyed. Thread-safe.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;
  /// Returns an uninitialised tensor. The tensor is in pinned memory if the loader's device is a GPU, so that copying
  /// it to the GPU does not block. Errors kUnavailable: no memory; kInvalidArgument: the tensor has too many bytes for
  /// int64.
  virtual at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) = 0;
};

/// Describes one batch to make. A source's `batch(request)` is called by several threads at a time.
class BatchRequest {
 public:
  struct Options {
    std::shared_ptr<BatchMemory> memory;
    uint64_t seed = 0;
    int64_t epoch = 0;
    int64_t first_position = 0;  ///< Position of the first sample in the epoch's order over all ranks.
    int64_t stride = 1;  ///< The number of ranks: neighbouring samples of a batch are this far apart in that order.
    /// Called for a sample that could not be read. Throws unless the loader may skip the sample.
    std::function<void(int64_t sample, const std::exception& error)> on_bad_sample;
  };

  BatchRequest(std::span<const int64_t> samples, Options options) : samples_(samples), options_(std::move(options)) {}

  /// The samples in the batch's order, each in [0, size of the source).
  std::span<const int64_t> samples() const { return samples_; }
  int64_t size() const { return static_cast<int64_t>(samples_.size()); }

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype,
                   at::MemoryFormat format = at::MemoryFormat::Contiguous) const {
    return options_.memory->empty(sizes, dtype, format);
  }

  /// The random numbers of sample `i` of samples(). The numbers depend on the loader's seed, the epoch and the sample's
  /// position in the order over all ranks, but not on the number of ranks or workers.
  SampleRandom random(int64_t i) const {
    return {options_.seed, options_.epoch, options_.first_position + i * options_.stride};
  }

  /// Calls make(row, sample, random) for each sample, with rows 0, 1, ... If `make` throws and the loader may skip the
  /// sample, the row is used for the next sample. Returns the number of rows made.
  /// Errors  what `make` throws, if the sample may not be skipped; kDataLoss: no sample of the batch could be read.
  int64_t for_each(const std::function<void(int64_t row, int64_t sample, SampleRandom& random)>& make) const;

 private:
  std::span<const int64_t> samples_;
  Options options_;
};

/// Applies function(sample) or function(sample, random) to each sample of another source, for example to decode and
/// augment the image of a file. Several workers call the function at the same time.
template <class Source, class Function>
class MappedSource {
 public:
  MappedSource(Source source, Function function) : source_(std::move(source)), function_(std::move(function)) {}

  int64_t size() const { return static_cast<int64_t>(source_.size()); }

  /// The other source's name of a sample, if it has names.
  std::string name(int64_t index) const requires requires(const Source& source) {
    std::string(source.name(int64_t{0}));
  }
  { return std::string(source_.name(index)); }

  auto sample(int64_t index, SampleRandom& random) const {
    if constexpr (requires { function_(source_.sample(index), random); }) {
      return function_(source_.sample(index), random);
    } else {
      return function_(source_.sample(index));
    }
  }

 private:
  Source source_;
  Function function_;
};

}  // namespace yoke::train
