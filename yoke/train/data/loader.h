// yoke/train/data/loader.h -- makes batches of samples, gathered and normalised before the training loop needs them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/train/data/sampler.h"
#include "yoke/train/data/samples.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Converts bytes to (x / 255 - mean) / stddev, with the same bits as torchvision's ToTensor and Normalize. The vectors
/// have one entry for all channels (dimension 1 of the data), or one per channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

struct LoaderOptions {
  int64_t batch_size = 64;  ///< Samples in a batch of this rank.
  bool shuffle = true;
  uint64_t seed = 0;   ///< Determines each epoch's order. It must be the same on all ranks, or they see overlapping
                       ///< samples.
  bool exact = false;  ///< Every sample appears exactly once, for evaluation: see DistributedSamplerOptions.
  /// Every batch is full and no sample appears twice in an epoch: the last samples of its order are left out.
  bool drop_last = false;
  int64_t num_workers = 1;   ///< Threads that make batches; with 0, next() makes them. The batches are the same.
  int64_t num_prefetch = 4;  ///< Batches ready or in progress, at least 1; additional workers are idle.
  std::optional<Normalization> normalization;  ///< For uint8 data; if unset, data are copied unchanged.
  at::ScalarType dtype = at::kFloat;           ///< Of normalised data: kFloat, kBFloat16 or kHalf, rounded to nearest.
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< Or ChannelsLast, for data [N, C, H, W].
  /// The device of the batches. The default is the World's device, or the CPU without a World.
  std::optional<c10::Device> device;
};

/// Both tensors are on the loader's device.
struct Batch {
  at::Tensor data;    ///< [batch, ...] like Samples::data, normalised.
  at::Tensor target;  ///< [batch, ...] like Samples::target.
};

/// The position of a training in its data. A checkpoint saves it for a loader.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  ///< Number of the next batch; while the last batch is in use, the number of batches.
  /// Samples per batch over all ranks. A loader with another number continues from the same sample; 0 means that the
  /// number is the same.
  int64_t samples_per_batch = 0;
};

/// Converts to "epoch 3, batch 17 of 256 samples" and back. Errors: kDataLoss, with `name`, for any other text.
std::string text_of(const LoaderPosition& position);
void read_text(const std::string& name, const std::string& text, LoaderPosition& position);

/// Makes this rank's batches of in-memory or mapped samples. Their order does not depend on the number of workers.
///
///     Loader loader(samples, world, {.batch_size = 256, .seed = 1, .drop_last = true});
///     for (auto& batch : loader.epoch(3)) { ... }
///
/// Memory   a batch stays valid and unchanged while a tensor or a view of it exists, even after the loader is
///          destroyed. Then its memory is reused for a later batch.
/// GPUs     a worker makes the batch in pinned memory, and next() starts its copy to the GPU on the caller's current
///          stream, so work on that stream needs no synchronisation. libtorch's allocator of pinned memory keeps the
///          buffer until the stream has passed the copy.
/// Threads  one caller. Workers start with the first batches. They receive no signals and do not use libtorch's thread
///          pool.
/// Errors   if a batch cannot be made (kUnavailable: no memory), the `next` that should return it throws.
class Loader {
 public:
  class Batches;

  /// For one process, which sees all samples.
  /// Errors  kInvalidArgument: samples are not contiguous or not on the CPU, the numbers of samples and targets differ,
  ///         or options do not fit them; kFailedPrecondition: a GPU is requested, but libtorch sees none.
  Loader(Samples samples, const LoaderOptions& options);
  /// For this rank of `world`, which gets its share of every epoch's samples, as a DistributedSampler divides them. Not
  /// collective; `world` is not used afterwards.
  Loader(Samples samples, const dist::Group& world, const LoaderOptions& options);
  Loader(Loader&&) noexcept;
  ~Loader();  ///< Allowed at any time: batches in progress are dropped.

  /// Begins epoch `epoch` (0, 1, ...) and returns its batches for a range-based for loop, from the first one or from
  /// the batch given to `resume`.
  /// Errors  kInvalidArgument: a negative epoch; kUnavailable: the system has no more threads. Then nothing is begun.
  Batches epoch(int64_t epoch);

  /// The number of batches of this rank in an epoch. With `exact` some ranks may have one more than others.
  int64_t num_batches() const;

  /// In the loop over an epoch, this is that epoch and the batch after the one in use. After the loop, it is the
  /// beginning of the next epoch. So a training resumed from a checkpoint continues with the first batch that it was
  /// not trained on.
  LoaderPosition position() const;

  /// The next `epoch(position.epoch)` begins at `position.batch`, and position() is `position` until then.
  /// Errors  kInvalidArgument: it is not a position in an epoch of this loader, or it is inside a batch.
  void resume(const LoaderPosition& position);

  /// The same for an order that the caller gives: batches of `indices`, each in [0, N), from batch `first_batch` on.
  /// Such an order belongs to no epoch, and position() does not count its batches.
  /// Errors  as epoch(); kInvalidArgument: an index is out of range, or first_batch is outside [0, number of batches].
  Batches start(std::vector<int64_t> indices, int64_t first_batch = 0);

  /// The number of batches for `num_indices` indices.
  int64_t num_batches(int64_t num_indices) const;

  /// Returns the next batch, and waits for it if necessary; nullopt at the end, and before an order was begun.
  std::optional<Batch> next();

 private:
  struct Impl;
  Loader(Samples samples, const LoaderOptions& options, const DistributedSamplerOptions& share);
  std::unique_ptr<Impl> impl_;
};

/// The batches of the epoch or order that was begun last. The range holds each batch until the loop asks for the next
/// one. The loop may break early. The loader must not be moved meanwhile.
/// Errors  as next(); kFailedPrecondition: the loader has begun another epoch or order meanwhile.
class Loader::Batches {
 public:
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;
    explicit Iterator(Batches* batches) : batches_(batches) {}
    Batch& operator*() const { return *batches_->current_; }
    Batch* operator->() const { return &*batches_->current_; }
    Iterator& operator++() {
      batches_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batches_->current_; }

   private:
    Batches* batches_;
  };

  Iterator begin() {
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Loader;
  Batches(Loader& loader, int64_t number) : loader_(&loader), number_(number) {}
  void advance();

  Loader* loader_;
  int64_t number_;  ///< Number of the order that the loader had begun.
  std::optional<Batch> current_;
};

}  // namespace yoke::train
