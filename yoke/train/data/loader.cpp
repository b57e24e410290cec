#include "yoke/train/data/loader.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/group.h"
#include "yoke/train/data/detail/batch_memory.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/device_copies.h"
#include "yoke/train/data/detail/epoch_division.h"
#include "yoke/train/data/detail/stream_queue.h"
#include "yoke/train/detail/step_phases.h"

namespace yoke::train {
namespace {

using detail::check_that;

LoaderOptions checked(LoaderOptions options, const dist::Group* world) {
  if (!options.device) options.device = world ? world->device() : c10::Device(c10::kCPU);
  check_that(options.batch_size >= 1, "loader: batch_size {}", options.batch_size);
  check_that(options.num_workers >= 0 && options.num_workers <= 1024, "loader: num_workers {}", options.num_workers);
  check_that(options.num_prefetch >= 1 && options.num_prefetch <= 1 << 20, "loader: num_prefetch {}",
             options.num_prefetch);
  check_that(options.shuffle_window >= 1, "loader: shuffle_window {}", options.shuffle_window);
  check_that(options.batches_per_epoch >= 0, "loader: batches_per_epoch {}", options.batches_per_epoch);
  check_that(options.max_bad_samples >= 0, "loader: max_bad_samples {}", options.max_bad_samples);
  // A loader for the CPU does not query GPUs.
  if (!options.device->is_cpu() && at::accelerator::deviceCount() == 0) {
    throw Error(ErrorCode::kFailedPrecondition, "loader: {} is requested, but libtorch sees no GPU",
                options.device->str());
  }
  return options;
}

DistributedSamplerOptions share_of(const LoaderOptions& options, int64_t num_samples, const dist::Group* world) {
  DistributedSamplerOptions share{.num_samples = num_samples,
                                  .shuffle = options.shuffle,
                                  .seed = options.seed,
                                  .drop_last = options.drop_last,
                                  .exact = options.exact,
                                  .sampler = options.sampler};
  if (world) {
    share.num_ranks = world->size();
    share.rank = world->rank();
  }
  return share;
}

/// Describes what determines the order of the samples over all ranks.
std::string describe_order(const LoaderOptions& options, int64_t num_samples, bool is_stream) {
  auto text = is_stream ? "a stream" : fmt::format("{} samples", num_samples);
  if (options.sampler) {
    const auto order = options.sampler->order(0);
    const int64_t count = options.sampler->num_positions, num_named = std::min<int64_t>(count, 8);
    text += " in the order";
    for (int64_t i = 0; i < num_named; ++i) text += fmt::format(" {}", order(i * count / num_named));
  } else if (options.shuffle) {
    text += fmt::format(" shuffled by seed {}", options.seed);
  }
  return text;
}

/// Fails on ranks whose order differs from that of the first rank that made this loader. Does not wait for other ranks.
/// Loaders that only some ranks make are told apart by their options.
void check_same_order(const dist::Group& world, const LoaderOptions& options, const std::string& order) {
  const auto key =
      fmt::format("loader/{}{}{}{}", options.shuffle, options.exact, options.drop_last, options.sampler.has_value());
  const auto other = world.differs_from_first(key, order);
  if (!other) return;
  world.fail(Error(ErrorCode::kInvalidArgument,
                   "loader: this rank has {}, and {}: a loader with a world divides one order between the ranks, so "
                   "they would train on overlapping samples; give all ranks the same seed, sampler and samples, or "
                   "leave out the world if each rank has samples of its own",
                   order, *other));
}

constexpr int64_t kUnknownLength = INT64_MAX / 4;  // of a pass over a stream

}  // namespace

struct LoaderBase::Impl {
  Impl(Functions given_functions, const dist::Group* world, const LoaderOptions& given)
      : options(checked(given, world)),
        functions(std::move(given_functions)),
        share(share_of(options, functions.num_samples, world)),
        sampler(share),
        slots(static_cast<size_t>(options.num_prefetch)) {
    if (functions.open) {
      stream.emplace(functions.open, options, share);
    } else {
      check_that(options.batches_per_epoch == 0, "loader: batches_per_epoch is for streams; this source has {} samples",
                 functions.num_samples);
    }
    if (share.num_ranks > 1) {
      check_same_order(*world, options, describe_order(options, functions.num_samples, functions.open != nullptr));
    }
    samples_per_batch = options.batch_size * share.num_ranks;
    if (options.device->is_cpu()) {
      memory = detail::batch_memory(2 * (options.num_prefetch + 2));  // most batches have two tensors
    } else {
      check_that(
          functions.for_each_tensor != nullptr,
          "loader: the batches are for {}, but their type has no for_each_tensor(batch, function); declare one in the "
          "type's namespace",
          options.device->str());
      memory = detail::pinned_batch_memory();
      copies.emplace(*options.device);
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    has_work.notify_all();
    for (auto& worker : workers) worker.join();
  }

  // A batch, or the error that prevented it. Both are empty after the end of a stream.
  struct Slot {
    bool ready = false;
    bool is_left_out = false;  // none of its samples could be read
    Made batch;
    std::vector<int64_t> samples;
    std::vector<BadSample> bad_samples;
    std::exception_ptr error;
    Clock::duration making_time = {};
    bool is_end() const { return ready && !batch && !error && !is_left_out; }
  };

  /// How this rank's batches divide an order of `num_indices` samples of its own.
  detail::EpochDivision own_division(int64_t num_indices, bool drop_last) const {
    return detail::EpochDivision(
        {.num_positions = num_indices, .batch_size = options.batch_size, .drop_last = drop_last});
  }

  /// How the ranks' batches divide an epoch that begins at a position.
  detail::EpochDivision division(const LoaderPosition& from) const {
    return detail::EpochDivision({.num_positions = stream ? kUnknownLength : sampler.num_positions(),
                                  .first = from.sample,
                                  .num_ranks = share.num_ranks,
                                  .rank = share.rank,
                                  .batch_size = options.batch_size,
                                  .exact = options.exact && !stream,
                                  .drop_last = options.drop_last});
  }

  int64_t num_batches(const LoaderPosition& from) const {
    if (!stream) return division(from).num_batches();
    if (!continues_passes()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "loader: the number of batches in a pass over a stream is unknown; set batches_per_epoch to have "
                  "epochs of a fixed length");
    }
    const int64_t num_left = std::max<int64_t>(0, options.batches_per_epoch * samples_per_batch - from.sample);
    return (num_left + samples_per_batch - 1) / samples_per_batch;
  }

  /// For a stream with batches_per_epoch: how many of its items come before an epoch.
  int64_t first_item_of(int64_t number) const {
    const int64_t length = options.batches_per_epoch * samples_per_batch, num_later = number - known_epoch;
    if (num_later == 0) return first_item;
    return num_later > 0 ? next_first_item + (num_later - 1) * length : number * length;
  }

  LoaderPosition begin_of(int64_t number) const {
    return {.epoch = number, .first_item = continues_passes() ? first_item_of(number) : -1};
  }

  /// The numbers of a batch's samples. In a stream, these are positions in the order over all ranks.
  std::vector<int64_t> samples_of(int64_t first, int64_t size) const {
    std::vector<int64_t> samples(static_cast<size_t>(size));
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t position = first + static_cast<int64_t>(i);
      if (stream) {
        samples[i] = position_of(position);
        continue;
      }
      samples[i] = begun.order(position);
      check_that(samples[i] >= 0 && samples[i] < functions.num_samples,
                 "loader: the sampler gives sample {} at position {}, but the source has {} samples", samples[i],
                 position, functions.num_samples);
    }
    return samples;
  }

  /// The position of one of this rank's samples in the order over all ranks.
  int64_t position_of(int64_t own) const { return begun.first_position + own * share.num_ranks; }

  Slot make(int64_t number) {
    Slot made{.ready = true};
    try {
      auto [first, size] = begun.division.batch(number);
      Items items;
      if (stream) {
        items = stream->read(number);
        size = static_cast<int64_t>(items.size());
        if (items.empty()) return made;
      }
      const auto samples = samples_of(first, size);
      BatchRequest::Options request{.memory = memory, .seed = options.seed, .epoch = begun.epoch};
      request.first_position = begun.is_in_order ? samples.front() : position_of(first);
      request.stride = begun.is_in_order ? 1 : share.num_ranks;
      std::vector<bool> is_bad(samples.size());
      if (options.max_bad_samples > 0) {
        request.on_bad_sample = [&](int64_t sample, const std::exception& error) {
          // A sampler may repeat a sample, and a repeated one is bad each time.
          for (size_t i = 0; i < samples.size(); ++i) is_bad[i] = is_bad[i] || samples[i] == sample;
          made.bad_samples.push_back({sample, dist::error_text(error), name_of(sample)});
        };
      }
      try {
        made.batch = functions.make({samples, std::move(request)}, items);
      } catch (...) {
        made.is_left_out = begun.is_in_order && made.bad_samples.size() == samples.size();
        if (!made.is_left_out) throw;
      }
      for (size_t i = 0; i < samples.size(); ++i) {
        if (!is_bad[i]) made.samples.push_back(samples[i]);
      }
    } catch (...) {
      made.error = std::current_exception();
    }
    return made;
  }

  void work() {
    pthread_setname_np(pthread_self(), "yoke-loader");
    // Pinned memory belongs to the context of a GPU. A new thread would use the context of the first GPU.
    c10::OptionalDeviceGuard guard;
    std::exception_ptr no_device;
    try {
      if (!options.device->is_cpu()) guard.reset_device(*options.device);
    } catch (...) {
      no_device = std::current_exception();
    }
    std::unique_lock lock(mutex);
    while (true) {
      has_work.wait(lock, [&] { return stopping || (next_made < end && next_made - next_taken < num_slots()); });
      if (stopping) return;
      const int64_t number = next_made++;
      ++num_busy;
      lock.unlock();
      const auto begin_of_making = Clock::now();
      auto made = no_device ? Slot{.ready = true, .error = no_device} : make(number);
      made.making_time = Clock::now() - begin_of_making;
      lock.lock();
      --num_busy;
      slots[static_cast<size_t>(number % num_slots())] = std::move(made);
      has_batch.notify_all();
    }
  }

  void start_workers() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // only the caller's threads receive signals
    try {
      while (static_cast<int64_t>(workers.size()) < options.num_workers) workers.emplace_back([this] { work(); });
    } catch (const std::exception& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw Error(ErrorCode::kUnavailable, "loader: starting worker {} of {}: {}", workers.size() + 1,
                  options.num_workers, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// An order whose batches are made.
  struct Begun {
    Order order = nullptr;  // of this rank's samples; null for a stream
    detail::EpochDivision division = {};
    int64_t epoch = -1;          // -1 if the caller gave the order
    int64_t first_position = 0;  // of this rank's first sample in the order over all ranks
    bool is_in_order = false;    // the order is that of the source
  };

  int64_t begin(Begun next, int64_t first_batch, int64_t num_batches, const std::function<void()>& seek = {}) {
    start_workers();  // comes first: if starting fails, no batch may have been begun
    {
      std::unique_lock lock(mutex);
      end = next_made;  // workers begin no further batch of the old order
      has_batch.wait(lock, [&] { return num_busy == 0; });
      for (auto& slot : slots) slot = {};
      copied = {};
      begun = std::move(next);
      next_made = next_taken = next_given = first_batch;
      if (seek) seek();
      end = num_batches;
    }
    has_work.notify_all();
    bad_samples.clear();
    samples_given.clear();
    is_epoch = false;
    return ++num_starts;
  }

  /// Returns the next batch in the memory in which it was made. The result is not ready if there is no next batch, or
  /// if `may_wait` is false and no worker has made the batch yet.
  Slot take(bool may_wait) {
    if (options.num_workers == 0) {
      if (next_taken == end || !may_wait) return {};
      auto made = make(next_taken++);
      return made.is_end() ? end_of_stream() : std::move(made);
    }
    std::unique_lock lock(mutex);
    if (next_taken == end) return {};
    auto& slot = slots[static_cast<size_t>(next_taken % num_slots())];
    if (!slot.ready && !may_wait) return {};
    has_batch.wait(lock, [&] { return slot.ready; });
    if (slot.is_end()) return end_of_stream();
    auto taken = std::exchange(slot, {});
    ++next_taken;
    lock.unlock();
    has_work.notify_one();
    return taken;
  }

  /// Ends the order: no further batch is made or taken. REQUIRES: with workers, the mutex is held.
  Slot end_of_stream() {
    end = next_taken;
    return {};
  }

  /// Like take(). Also starts the batch's copy to the GPU.
  Slot take_to_device(bool may_wait) {
    auto slot = take(may_wait);
    if (!copies || !slot.batch) return slot;  // also if the batch was left out
    try {
      copies->start([&](const TensorVisitor& f) { functions.for_each_tensor(slot.batch.get(), f); });
    } catch (...) {
      slot.batch.reset();
      slot.error = std::current_exception();
    }
    return slot;
  }

  void take_bad_samples(Slot& slot) {
    for (auto& bad : slot.bad_samples) {
      bad_samples.push_back(std::move(bad));
      if (static_cast<int64_t>(bad_samples.size()) > options.max_bad_samples) {
        throw Error(ErrorCode::kDataLoss, "loader: over {} samples cannot be read (max_bad_samples); sample {}: {}",
                    options.max_bad_samples, bad_samples.back().sample, bad_samples.back().error);
      }
    }
  }

  std::string name_of(int64_t sample) const { return functions.name ? functions.name(sample) : std::to_string(sample); }

  Made next() {
    RECORD_USER_SCOPE("data_loading");
    Slot slot;
    do {
      slot = std::exchange(copied, {});
      if (!slot.ready) slot = take_to_device(true);
      if (!slot.ready) {
        if (is_epoch) ++epoch;
        is_epoch = false;
        return nullptr;
      }
      ++next_given;
      take_bad_samples(slot);
    } while (slot.is_left_out);
    if (slot.error) std::rethrow_exception(slot.error);
    samples_given = std::move(slot.samples);
    const auto num_at_once = std::clamp<int64_t>(options.num_workers, 1, options.num_prefetch);
    detail::note_loading(std::chrono::nanoseconds(slot.making_time).count() / num_at_once);
    if (copies) {
      copies->finish([&](const TensorVisitor& f) { functions.for_each_tensor(slot.batch.get(), f); });
      copied = take_to_device(false);
    }
    return std::move(slot.batch);
  }

  bool is_ready() {
    if (copied.ready) return true;
    const std::lock_guard lock(mutex);
    return next_taken == end || slots[static_cast<size_t>(next_taken % num_slots())].ready;
  }

  int64_t num_slots() const { return options.num_prefetch; }
  bool continues_passes() const { return stream && options.batches_per_epoch > 0; }

  const LoaderOptions options;  // its device is always set
  const Functions functions;
  const DistributedSamplerOptions share;
  const DistributedSampler sampler;
  int64_t samples_per_batch = 0;              // over all ranks
  std::optional<detail::StreamQueue> stream;  // set if the source is a stream
  std::shared_ptr<BatchMemory> memory;
  std::optional<detail::DeviceCopies> copies;  // set if the device is a GPU

  // Only the caller's thread uses the next members.
  int64_t epoch = 0;       // the epoch begun last; after next() has returned the end, the following epoch
  int64_t num_starts = 0;  // number of orders begun
  bool is_epoch = false;   // the order begun last is an epoch, and next() has not returned its end
  int64_t next_given = 0;  // number of the batch that next() returns next
  Slot copied;             // the batch after next_given, if its copy to the GPU was started
  std::vector<BadSample> bad_samples;
  std::vector<int64_t> samples_given;  // of the batch that next() returned last
  std::optional<LoaderPosition> resumed;
  // For a stream with batches_per_epoch: a known epoch, and how many items come before it and before the next one.
  int64_t known_epoch = -1, first_item = 0, next_first_item = 0;

  Begun begun;  // changes only while no worker is busy

  std::mutex mutex;  // guards the members below
  std::condition_variable has_work, has_batch;
  std::vector<Slot> slots;  // batch n uses slot n modulo the number of slots
  int64_t next_made = 0;    // number of the batch that the next free worker makes
  int64_t next_taken = 0;   // number of the batch whose slot is freed next
  int64_t end = 0;
  int64_t num_busy = 0;
  bool stopping = false;
  std::vector<std::thread> workers;
};

LoaderBase::LoaderBase(Functions functions, const dist::Group* world, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(functions), world, options)) {}

LoaderBase::LoaderBase(LoaderBase&&) noexcept = default;
LoaderBase::~LoaderBase() = default;

int64_t LoaderBase::begin_epoch(int64_t epoch) {
  check_that(epoch >= 0, "loader: epoch {}", epoch);
  auto& loader = *impl_;
  const bool is_resumed = loader.resumed && loader.resumed->epoch == epoch;
  const auto from = is_resumed ? *loader.resumed : loader.begin_of(epoch);
  Impl::Begun next{.division = loader.division(from), .epoch = epoch};
  next.first_position = next.division.position(0);
  const int64_t first_position = next.first_position;
  int64_t number = 0;
  if (loader.stream) {
    const int64_t num_batches = loader.continues_passes() ? loader.num_batches(from) : INT64_MAX;
    number = loader.begin(std::move(next), 0, num_batches, [&] {
      loader.stream->seek(loader.continues_passes() ? 0 : epoch, std::max<int64_t>(0, from.first_item) + from.sample,
                          first_position - from.sample);
    });
    if (loader.continues_passes()) {
      loader.known_epoch = epoch;
      loader.first_item = from.first_item;
      loader.next_first_item = from.first_item + from.sample + num_batches * loader.samples_per_batch;
    }
  } else {
    next.order = loader.sampler.order(epoch, from.sample);
    const int64_t num_batches = next.division.num_batches();
    number = loader.begin(std::move(next), 0, num_batches);
  }
  loader.resumed.reset();
  loader.epoch = epoch;
  loader.is_epoch = true;
  return number;
}

int64_t LoaderBase::num_batches() const { return impl_->num_batches(LoaderPosition()); }
int64_t LoaderBase::num_batches(const LoaderPosition& position) const { return impl_->num_batches(position); }

LoaderPosition LoaderBase::position() const {
  if (impl_->resumed) return *impl_->resumed;
  auto position = impl_->begin_of(impl_->epoch);
  if (impl_->is_epoch) position.sample = impl_->begun.division.sample_after(impl_->next_given);
  return position;
}

void LoaderBase::resume(const LoaderPosition& given) {
  const auto& loader = *impl_;
  check_that(given.epoch >= 0 && given.sample >= 0, "loader: not a position to resume at: {}", text_of(given));
  LoaderPosition position{.epoch = given.epoch, .sample = given.sample};
  if (!loader.stream) {
    const int64_t num_positions = loader.sampler.num_positions();
    if (given.sample - num_positions < given.samples_per_batch) position.sample = std::min(given.sample, num_positions);
    check_that(position.sample <= num_positions,
               "loader: not a position to resume at: {}, where an epoch has {} samples: resume with the same samples",
               text_of(given), num_positions);
  } else if (loader.continues_passes()) {
    position.first_item = given.first_item;
    if (given.first_item < 0) {
      position.first_item = given.samples_per_batch > 0
                                ? given.epoch * loader.options.batches_per_epoch * given.samples_per_batch
                                : loader.first_item_of(given.epoch);
    }
  }
  impl_->resumed = position;
}

int64_t LoaderBase::num_batches(int64_t num_indices) const {
  return impl_->own_division(num_indices, impl_->options.drop_last).num_batches();
}

int64_t LoaderBase::begin(std::vector<int64_t> indices, int64_t first_batch) {
  if (impl_->stream) {
    throw Error(ErrorCode::kFailedPrecondition, "loader: the samples of a stream have no numbers; use epoch()");
  }
  const auto num_samples = impl_->functions.num_samples;
  const auto bad =
      std::find_if(indices.begin(), indices.end(), [&](int64_t index) { return index < 0 || index >= num_samples; });
  check_that(bad == indices.end(), "loader: index {} at place {} is outside the {} samples",
             bad == indices.end() ? 0 : *bad, bad - indices.begin(), num_samples);
  const auto count = static_cast<int64_t>(indices.size());
  check_that(first_batch >= 0 && first_batch <= num_batches(count), "loader: first_batch {} of {} batches", first_batch,
             num_batches(count));
  const auto order = [samples = std::make_shared<const std::vector<int64_t>>(std::move(indices))](int64_t position) {
    return (*samples)[static_cast<size_t>(position)];
  };
  return impl_->begin({.order = order,
                       .division = impl_->own_division(count, impl_->options.drop_last),
                       .first_position = impl_->share.rank},
                      first_batch, num_batches(count));
}

int64_t LoaderBase::begin_in_order(const SourceOrder& part) {
  const int64_t size = impl_->options.batch_size, first = part.first_sample, count = num_samples() - first;
  check_that(first >= 0 && count >= 0, "loader: an order from sample {} on, and the source has {}", first,
             num_samples());
  check_that(part.num_ranks >= 1 && part.rank >= 0 && part.rank < part.num_ranks, "loader: rank {} of {} ranks",
             part.rank, part.num_ranks);
  const int64_t all_batches = count / size + (count % size != 0 ? 1 : 0);
  const int64_t own_batches = (all_batches - part.rank + part.num_ranks - 1) / part.num_ranks;
  const bool has_last = own_batches > 0 && (all_batches - 1) % part.num_ranks == part.rank;
  const int64_t own_samples = own_batches * size - (has_last ? all_batches * size - count : 0);
  const auto order = [first, size, part](int64_t position) {
    const int64_t batch = part.rank + position / size * part.num_ranks;
    return first + batch * size + position % size;
  };
  return impl_->begin(
      {.order = order, .division = impl_->own_division(own_samples, /*drop_last=*/false), .is_in_order = true}, 0,
      own_batches);
}

LoaderBase::Made LoaderBase::next_made() { return impl_->next(); }

bool LoaderBase::is_ready() const { return impl_->is_ready(); }

const std::vector<BadSample>& LoaderBase::bad_samples() const { return impl_->bad_samples; }
const std::vector<int64_t>& LoaderBase::samples() const { return impl_->samples_given; }
std::string LoaderBase::name_of(int64_t sample) const { return impl_->name_of(sample); }
bool LoaderBase::has_names() const { return impl_->functions.name != nullptr; }
int64_t LoaderBase::batch_size() const { return impl_->options.batch_size; }
int64_t LoaderBase::samples_per_batch() const { return impl_->samples_per_batch; }
int64_t LoaderBase::samples_per_epoch() const { return impl_->stream ? 0 : impl_->sampler.num_positions(); }

int64_t LoaderBase::num_samples() const {
  if (!impl_->stream) return impl_->functions.num_samples;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "loader: the number of samples in a stream is unknown, and they have no numbers; give the loader a source "
      "with size()");
}

void LoaderBase::check_begun(int64_t number) const {
  if (impl_->num_starts != number) {
    throw Error(ErrorCode::kFailedPrecondition,
                "loader: another epoch or order was begun within the loop over this one; use a loader for each");
  }
}

}  // namespace yoke::train
