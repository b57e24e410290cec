// yoke/train/data/loader.h -- makes batches of samples on the training's device, before the training loop needs them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/data/collate.h"
#include "yoke/train/data/loader_position.h"
#include "yoke/train/data/normalization.h"
#include "yoke/train/data/sampler.h"
#include "yoke/train/data/samples.h"
#include "yoke/train/data/source.h"
#include "yoke/train/data/stream.h"

namespace yoke::train {

struct LoaderOptions {
  int64_t batch_size = 64;  ///< Samples in a batch of this rank.
  bool shuffle = true;
  uint64_t seed = 0;  ///< Determines each epoch's order and augmentation. With a world, the same on all ranks.
  /// Every sample appears exactly once, for evaluation. Ranks may differ by one sample, but have the same number of
  /// batches, so that the loop may call collectives: if a rank lacks the sample that would begin another batch, its
  /// last batch is divided into two. The exceptions, in which the loop must not call collectives: batch_size is 1,
  /// there are fewer samples than ranks, or the source is a stream.
  bool exact = false;
  /// Every batch is full and no sample appears twice in an epoch: the last samples of the epoch's order are left out.
  bool drop_last = false;
  std::optional<Sampler> sampler;  ///< Gives the order instead of `shuffle`; see sampler.h.
  int64_t num_workers = 1;         ///< Threads that make batches. With 0, next() makes the same batches itself.
  int64_t num_prefetch = 4;        ///< Batches ready or in progress, at least 1; more workers than this are idle.
  /// How many samples of an epoch may be unreadable. Their batches leave them out, and LoaderBase::bad_samples() lists
  /// them. One more unreadable sample is an error.
  int64_t max_bad_samples = 0;
  /// The device of the batches. The default is the World's device, or the CPU without a World.
  std::optional<c10::Device> device;

  // For streams only.
  int64_t shuffle_window = 1024;  ///< With `shuffle`, so many neighbouring items are in memory and shuffled.
  /// The batches of an epoch. Epochs then follow each other through the stream, over as many passes as they need. If 0,
  /// an epoch is a pass, and the number of its batches is unknown.
  int64_t batches_per_epoch = 0;

  // For Samples only. Other sources have options of their own.
  std::optional<Normalization> normalization;  ///< For uint8 data; if unset, data are copied unchanged.
  at::ScalarType dtype = at::kFloat;           ///< For normalised data: kFloat, kBFloat16 or kHalf, rounded to nearest.
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< Or ChannelsLast, for data [N, C, H, W].
};

/// A sample that a loader left out, because it could not be read.
struct BadSample {
  int64_t sample = 0;
  std::string error;
  std::string name = {};  ///< LoaderBase::name_of(sample)
};

/// Batches of a source in its own order, for predicting: batch b has the samples from first_sample + b * batch_size on.
/// Each sample is in one batch. So the batches do not depend on the number of ranks.
struct SourceOrder {
  int64_t first_sample = 0;
  int64_t rank = 0;  ///< Of all batches, those with the numbers rank, rank + num_ranks, ... are made.
  int64_t num_ranks = 1;
};

/// The base of all loaders. LoaderBase does not depend on the type of a batch: functions that Loader passes make the
/// batches.
class LoaderBase {
 public:
  LoaderBase(LoaderBase&&) noexcept;
  ~LoaderBase();  ///< May run at any time: batches in progress are dropped.

  /// The number of batches of this rank in an epoch, the same on all ranks, but see LoaderOptions::exact.
  /// Errors  kFailedPrecondition: the source is a stream, and LoaderOptions::batches_per_epoch is not set.
  int64_t num_batches() const;
  /// The number of batches for `num_indices` indices.
  int64_t num_batches(int64_t num_indices) const;
  /// The number of this rank's batches in an epoch that is resumed at `position`. Errors as num_batches().
  int64_t num_batches(const LoaderPosition& position) const;

  /// Inside the loop over an epoch, returns this epoch and the samples that batches had, with the current one. After
  /// the loop, returns the beginning of the next epoch. So a training that resumes from a checkpoint continues with the
  /// first sample that it has not used yet.
  LoaderPosition position() const;

  /// Continues from a saved position, also on another number of ranks or with another batch size: the rest of the epoch
  /// is divided anew, so that each of its samples is in one batch. The order must be the same: the source, the seed and
  /// the sampler with its options, and of a stream `shuffle` and `shuffle_window`. Until an epoch is begun, position()
  /// returns this position. If the next epoch begun is `position.epoch`, it starts there; any other epoch starts at its
  /// beginning. Streams  with batches_per_epoch, later epochs follow where this one ends, so no item is skipped or
  /// repeated. A resumed
  ///          epoch ends with the first batch with which it has batches_per_epoch * samples_per_batch() items or more.
  /// Errors   kInvalidArgument: it is not a position in an epoch of this loader.
  void resume(const LoaderPosition& position);

  /// Returns true if the next batch is ready, so that next() would not wait for a worker; also at the end. If this is
  /// true at every step, loading does not slow down the training.
  bool is_ready() const;

  /// The samples that were left out since the last epoch or order was begun, in the order of their batches.
  const std::vector<BadSample>& bad_samples() const;

  /// The numbers of the samples in the batch that next() returned last, in the order of its rows and without bad ones;
  /// empty before the first batch. For a stream, these are positions in the order over all ranks.
  const std::vector<int64_t>& samples() const;
  /// What the source calls a sample: the result of its member `name(sample)`, such as the path of a file. Otherwise the
  /// number.
  std::string name_of(int64_t sample) const;
  bool has_names() const;  ///< Whether the source has the member `name`.

  /// Samples in the source. Errors  kFailedPrecondition: the source is a stream.
  int64_t num_samples() const;
  int64_t batch_size() const;         ///< LoaderOptions::batch_size
  int64_t samples_per_batch() const;  ///< Of all ranks together.
  int64_t samples_per_epoch() const;  ///< In the order of an epoch, over all ranks; 0 for a stream.

 protected:
  using Made = std::shared_ptr<void>;
  using Items = std::vector<detail::StreamItem>;
  struct Functions {
    int64_t num_samples = 0;
    detail::OpenStream open = nullptr;  ///< Set if the source is a stream.
    /// Makes a batch of the request's samples, or of a stream's items.
    std::function<Made(const BatchRequest&, const Items&)> make;
    std::function<void(void* batch, const TensorVisitor&)> for_each_tensor;
    std::function<std::string(int64_t sample)> name = nullptr;  ///< Set if the source has names.
  };
  /// Without `world`, one process sees all samples.
  LoaderBase(Functions functions, const dist::Group* world, const LoaderOptions& options);

  /// begin_epoch(), begin() and begin_in_order() return a number that identifies the order begun.
  int64_t begin_epoch(int64_t epoch);
  int64_t begin(std::vector<int64_t> indices, int64_t first_batch);
  int64_t begin_in_order(const SourceOrder& order);
  Made next_made();                        ///< Null at the end.
  void check_begun(int64_t number) const;  ///< Throws unless the order begun last has this number.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

/// Returns the function that makes batches of tensors. Checks samples and options.
std::function<Batch(const BatchRequest&)> batches_of(const Samples& samples, const LoaderOptions& options);
/// Throws kInvalidArgument if an option for Samples is set.
void check_not_for_samples(const LoaderOptions& options);

template <class Source>
concept MakesBatches = requires(const Source& source, const BatchRequest& request) {
  source.batch(request);
};

template <class Source>
auto sample_of(const Source& source, int64_t index, SampleRandom& random) {
  if constexpr (requires { source.sample(index, random); }) {
    return source.sample(index, random);
  } else {
    return source.sample(index);
  }
}

template <class Source, class Collate>
auto make_batch(const Source& source, const Collate& collate, const BatchRequest& request) {
  if constexpr (MakesBatches<Source>) {
    return source.batch(request);
  } else {
    std::vector<decltype(sample_of(source, 0, std::declval<SampleRandom&>()))> samples;
    samples.reserve(static_cast<size_t>(request.size()));
    request.for_each(
        [&](int64_t, int64_t index, SampleRandom& random) { samples.push_back(sample_of(source, index, random)); });
    return collate(request, std::move(samples));
  }
}

template <Stream Source, class Collate>
auto make_batch(const Source& source, const Collate& collate, const BatchRequest& request,
                const std::vector<StreamItem>& items) {
  using Item = const StreamItemOf<Source>;
  std::vector<decltype(stream_sample(source, std::declval<Item&>(), std::declval<SampleRandom&>()))> samples;
  samples.reserve(items.size());
  auto next = items.begin();
  request.for_each([&](int64_t, int64_t, SampleRandom& random) {
    samples.push_back(stream_sample(source, *static_cast<Item*>((next++)->get()), random));
  });
  return collate(request, std::move(samples));
}

template <class Source, class Collate>
struct BatchOf {
  using type = decltype(make_batch(std::declval<const Source&>(), std::declval<const Collate&>(),
                                   std::declval<const BatchRequest&>()));
};
template <Stream Source, class Collate>
struct BatchOf<Source, Collate> {
  using type = decltype(make_batch(std::declval<const Source&>(), std::declval<const Collate&>(),
                                   std::declval<const BatchRequest&>(), std::declval<std::vector<StreamItem>>()));
};
template <class Collate>
struct BatchOf<Samples, Collate> {
  using type = Batch;
};

}  // namespace detail

/// Makes this rank's batches of a source. Their order and content do not depend on the number of workers.
///
///     Loader loader(samples, world, {.batch_size = 256, .seed = 1, .drop_last = true});
///     for (auto& batch : loader.epoch(3)) { ... }
///
/// Source   Samples, in memory or mapped; or a type with `int64_t size() const` and one of
///          - `sample(int64_t index) const` or `sample(int64_t index, SampleRandom& random) const`, which returns a
///            sample of any type; `Collate` makes batches of them,
///          - `batch(const BatchRequest&) const`, which returns a whole batch;
///          it may also have `name(int64_t index) const`, a text by which people know a sample;
///          or a Stream (stream.h), whose number of samples is unknown.
///          Workers call it at the same time. What it throws becomes the error of that sample.
/// Memory   a batch stays valid and unchanged while a tensor or a view of it exists, even after the loader is
///          destroyed. Then its memory is reused for a later batch.
/// GPUs     a worker makes the batch in pinned memory. While the caller uses one batch, the next batch is copied on a
///          separate stream. The caller's current stream waits for the copy, so no synchronisation is needed.
/// Threads  one caller. Workers start with the first batches, and receive no signals. Batches of Samples do not use
///          libtorch's thread pool.
/// Errors   if a batch cannot be made, the call of `next` that should return it throws.
template <class Source = Samples, class Collate = Stack>
class Loader : public LoaderBase {
 public:
  class Batches;
  using value_type = typename detail::BatchOf<Source, Collate>::type;  ///< A batch: Batch for Samples.

  /// For one process, which sees all samples.
  /// Errors  kInvalidArgument: samples are not contiguous or not on the CPU, the numbers of samples and targets differ,
  ///         or options do not fit the samples; kFailedPrecondition: a GPU is requested, but libtorch sees none.
  Loader(Source source, const LoaderOptions& options, Collate collate = {})
      : LoaderBase(functions(std::move(source), std::move(collate), options), nullptr, options) {}
  /// For this rank of `world`. Divides every epoch's samples between ranks like a DistributedSampler. Not collective;
  /// `world` is not used afterwards.
  /// Errors  those above; kInvalidArgument, reported to the other ranks: another rank's loader has another number of
  ///         samples, seed or sampler, so that ranks would see overlapping samples.
  Loader(Source source, const dist::Group& world, const LoaderOptions& options, Collate collate = {})
      : LoaderBase(functions(std::move(source), std::move(collate), options), &world, options) {}

  /// Begins epoch `epoch` (0, 1, ...) and returns its batches for a range-based for loop, from its beginning or from
  /// the position given to `resume`. Errors  kInvalidArgument: a negative epoch; kUnavailable: the system has no more
  /// threads. Then nothing is begun.
  Batches epoch(int64_t epoch) { return {*this, begin_epoch(epoch)}; }

  /// A loader is no range, because the order depends on the epoch.
  template <class Range = Batches>
  typename Range::Iterator begin() {
    static_assert(!std::is_same_v<Range, Batches>,
                  "write `for (auto& batch : loader.epoch(0))`, with the epoch's number");
  }
  std::default_sentinel_t end() { return {}; }

  /// Like epoch() for an order that the caller gives: batches of `indices`, each in [0, N), from batch `first_batch`
  /// on. Such an order belongs to no epoch, and position() does not count its batches.
  /// Errors  as epoch(); kInvalidArgument: an index is out of range, or first_batch is outside [0, number of batches];
  ///         kFailedPrecondition: the source is a stream, whose samples have no numbers.
  Batches start(std::vector<int64_t> indices, int64_t first_batch = 0) {
    return {*this, LoaderBase::begin(std::move(indices), first_batch)};
  }

  /// Like start() for a part of the source's own order, each sample once. LoaderOptions::shuffle, sampler, exact and
  /// drop_last do not matter, and neither does the world of the loader, for `order` says which batches are made. Random
  /// numbers of a sample depend on its number alone. A batch of which no sample can be read is left out, if
  /// max_bad_samples allows it.
  /// Errors  as epoch(); kInvalidArgument: the order is not possible; kFailedPrecondition: the source is a stream.
  Batches in_order(const SourceOrder& order = {}) { return {*this, begin_in_order(order)}; }

  /// Returns the next batch, waiting if necessary. Returns nullopt at the end, and if no order was begun.
  std::optional<value_type> next() {
    const auto made = next_made();
    if (!made) return std::nullopt;
    return std::move(*static_cast<value_type*>(made.get()));
  }

 private:
  static Functions functions(Source source, Collate collate, const LoaderOptions& options) {
    Functions result;
    if constexpr (std::is_same_v<Source, Samples>) {
      result.num_samples = source.data.defined() && source.data.dim() > 0 ? source.data.size(0) : 0;
      result.make = [make = detail::batches_of(source, options)](const BatchRequest& request, const Items&) -> Made {
        return std::make_shared<Batch>(make(request));
      };
    } else {
      detail::check_not_for_samples(options);
      const auto from = std::make_shared<const Source>(std::move(source));
      const auto with = std::make_shared<const Collate>(std::move(collate));
      if constexpr (Stream<Source>) {
        result.open = [from](int64_t pass) { return std::make_unique<detail::StreamPassOf<Source>>(*from, pass); };
        result.make = [from, with](const BatchRequest& request, const Items& items) -> Made {
          return std::make_shared<value_type>(detail::make_batch(*from, *with, request, items));
        };
      } else {
        result.num_samples = static_cast<int64_t>(from->size());
        if constexpr (requires { std::string(from->name(int64_t{0})); }) {
          result.name = [from](int64_t sample) { return std::string(from->name(sample)); };
        }
        result.make = [from, with](const BatchRequest& request, const Items&) -> Made {
          return std::make_shared<value_type>(detail::make_batch(*from, *with, request));
        };
      }
    }
    if constexpr (requires(value_type & batch, const TensorVisitor& f) { for_each_tensor(batch, f); }) {
      result.for_each_tensor = [](void* batch, const TensorVisitor& f) {
        for_each_tensor(*static_cast<value_type*>(batch), f);
      };
    }
    return result;
  }
};

/// The batches of the epoch or order that was begun last. The range holds each batch until the loop asks for the next
/// one. The loop may break early. Do not move the loader during the loop.
/// Errors  as next(); kFailedPrecondition: another epoch or order was begun during the loop.
template <class Source, class Collate>
class Loader<Source, Collate>::Batches {
 public:
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = typename Loader::value_type;
    explicit Iterator(Batches* batches) : batches_(batches) {}
    value_type& operator*() const { return *batches_->current_; }
    value_type* operator->() const { return &*batches_->current_; }
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

  void advance() {
    current_.reset();  // its memory may be reused for the next batch
    loader_->check_begun(number_);
    current_ = loader_->next();
  }

  Loader* loader_;
  int64_t number_;  ///< Identifies the order that the range belongs to.
  std::optional<typename Loader::value_type> current_;
};

}  // namespace yoke::train
