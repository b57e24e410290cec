// yoke/train/data/loader.h -- batches of samples, gathered and normalised ahead of the training loop.
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

/// Bytes become (x / 255 - mean) / stddev: torchvision's ToTensor and Normalize, to the last bit. One entry for all
/// channels (dimension 1 of the data), or one for each.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

struct LoaderOptions {
  int64_t batch_size = 64;  ///< Samples in a batch of this rank.
  bool shuffle = true;
  uint64_t seed = 0;   ///< Decides each epoch's order. All ranks must give the same, or they see overlapping samples.
  bool exact = false;  ///< Every sample comes once, as in an evaluation: see DistributedSamplerOptions.
  /// Every batch is full and no sample comes twice in an epoch: the last samples of its order are left out.
  bool drop_last = false;
  int64_t num_workers = 1;   ///< Threads that make batches; 0: next() makes them itself. The batches are the same.
  int64_t num_prefetch = 4;  ///< Batches ready or in the making, at least 1; workers beyond this many idle.
  std::optional<Normalization> normalization;  ///< For uint8 data; without it data are copied as they are.
  at::ScalarType dtype = at::kFloat;           ///< Of normalised data: kFloat, kBFloat16 or kHalf, rounded to nearest.
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< Or ChannelsLast, for data [N, C, H, W].
  /// Where batches are when the loader gives them. The default is the World's device, and without a World the CPU.
  std::optional<c10::Device> device;
};

/// Both tensors are on the loader's device.
struct Batch {
  at::Tensor data;    ///< [batch, ...] like Samples::data, normalised.
  at::Tensor target;  ///< [batch, ...] like Samples::target.
};

/// How far a training has come in its data: what a checkpoint keeps of a loader.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  ///< The number of its next batch; while its last one is in use, how many it has.
  /// Of all ranks. A loader that takes another number in a batch goes on from the same sample; 0: batches are alike.
  int64_t samples_per_batch = 0;
};

/// "epoch 3, batch 17 of 256 samples", and back. Errors: kDataLoss, with `name`, for anything else.
std::string text_of(const LoaderPosition& position);
void read_text(const std::string& name, const std::string& text, LoaderPosition& position);

/// This rank's batches of in-memory or mapped samples, in the same order whatever the number of workers.
///
///     Loader loader(samples, world, {.batch_size = 256, .seed = 1, .drop_last = true});
///     for (auto& batch : loader.epoch(3)) { ... }
///
/// Memory   a batch stays valid and unchanged as long as anything holds it or a view of it, also after the loader is
///          gone; then its memory serves a later batch.
/// GPUs     a worker makes the batch in pinned memory, and next() starts its copy to the GPU on the caller's current
///          stream, so work on that stream needs no synchronisation. libtorch's allocator of pinned memory keeps the
///          buffer until the stream has passed the copy.
/// Threads  one caller. Workers start with the first batches, take no signals and none of libtorch's threads.
/// Errors   a batch that could not be made (kUnavailable: no memory) throws in the `next` that should have given it.
class Loader {
 public:
  class Batches;

  /// For one process, which sees all samples.
  /// Errors  kInvalidArgument: samples not contiguous, not on the CPU or not as many as their targets; options that do
  ///         not fit them. kFailedPrecondition: a GPU is asked for, and libtorch sees none.
  Loader(Samples samples, const LoaderOptions& options);
  /// For this rank of `world`: its share of every epoch's samples, as a DistributedSampler divides them. Not
  /// collective, and `world` is not used afterwards.
  Loader(Samples samples, const dist::Group& world, const LoaderOptions& options);
  Loader(Loader&&) noexcept;
  ~Loader();  ///< At any time: batches in the making are dropped.

  /// Begins epoch `epoch` (0, 1, ...) and gives its batches, for a range-based for loop: from the first one, or from
  /// the batch that `resume` named.
  /// Errors  kInvalidArgument: a negative epoch. kUnavailable: the system has no more threads. Nothing is begun then.
  Batches epoch(int64_t epoch);

  /// How many batches this rank has in an epoch. With `exact` some ranks may have one more than others.
  int64_t num_batches() const;

  /// Within the loop over an epoch: that epoch, and the batch after the one in use. After the loop: the next epoch's
  /// beginning. So a checkpoint that is saved at any time continues with the first batch that was not trained on.
  LoaderPosition position() const;

  /// The next `epoch(position.epoch)` begins at `position.batch`, and position() is `position` until then.
  /// Errors  kInvalidArgument: no position in an epoch of this loader, or one within a batch of it.
  void resume(const LoaderPosition& position);

  /// The same for an order of the caller's own: batches of `indices`, each in [0, N), from number `first_batch` on.
  /// Such an order belongs to no epoch, and position() does not count its batches.
  /// Errors  as epoch(); kInvalidArgument: an index outside the samples; first_batch outside [0, number of batches].
  Batches start(std::vector<int64_t> indices, int64_t first_batch = 0);

  /// How many batches `num_indices` indices make.
  int64_t num_batches(int64_t num_indices) const;

  /// The next batch, waiting for it if need be; nullopt at the end, and before anything has begun.
  std::optional<Batch> next();

 private:
  struct Impl;
  Loader(Samples samples, const LoaderOptions& options, const DistributedSamplerOptions& share);
  std::unique_ptr<Impl> impl_;
};

/// The batches of what was begun last, each until the loop asks for the next. Breaking off early is fine. The loader
/// must stay where it is meanwhile.
/// Errors  as next(); kFailedPrecondition when the loader has begun something else meanwhile.
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
  int64_t number_;  ///< Counts what the loader has begun.
  std::optional<Batch> current_;
};

}  // namespace yoke::train
