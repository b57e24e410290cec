#include "yoke/train/data/loader.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/strides.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/data/detail/gather.h"

namespace yoke::train {
namespace {

template <typename... Args>
void check_that(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) {
    throw Error(ErrorCode::kInvalidArgument, "loader: {}", fmt::format(format, std::forward<Args>(args)...));
  }
}

// A pool of equal memory blocks for batches. A block returns to the pool when its last tensor is destroyed, because
// fresh memory would cost a page fault for every 4 KiB of every batch. Tensors hold the pool, so it may outlive its
// loader.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  BufferPool(int64_t buffer_bytes, int64_t max_kept) : buffer_bytes_(buffer_bytes) {
    kept_.reserve(static_cast<size_t>(max_kept));
  }

  at::Tensor tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
    auto buffer = take();
    void* const data = buffer.get();
    // std::function must be copyable, so the deleter holds a shared_ptr although it is the only owner.
    return at::from_blob(
        data, sizes, strides,
        [pool = shared_from_this(), guard = std::shared_ptr<Memory>(new Memory(std::move(buffer)))](void*) {
          pool->give(std::move(*guard));
        },
        at::TensorOptions(dtype));
  }

 private:
  static constexpr auto kAlignment = std::align_val_t(64);
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  Memory take() {
    {
      const std::lock_guard lock(mutex_);
      if (!kept_.empty()) {
        auto buffer = std::move(kept_.back());
        kept_.pop_back();
        return buffer;
      }
    }
    return Memory(static_cast<std::byte*>(::operator new(static_cast<size_t>(buffer_bytes_), kAlignment)));
  }

  void give(Memory buffer) noexcept {
    const std::lock_guard lock(mutex_);
    if (kept_.size() < kept_.capacity()) kept_.push_back(std::move(buffer));
  }

  const int64_t buffer_bytes_;
  std::mutex mutex_;
  std::vector<Memory> kept_;
};

// One of a batch's two tensors: the shape of a row, and the source of its memory.
struct Column {
  at::Tensor source;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;  // of a full batch
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  detail::SampleShape shape;
  std::shared_ptr<BufferPool> pool;  // null: libtorch's pinned memory

  Column(const at::Tensor& samples, at::ScalarType to, at::MemoryFormat format, const LoaderOptions& options)
      : source(samples.resolve_conj().resolve_neg()), dtype(to), sizes(source.sizes().vec()), memory_format(format) {
    shape.pixels = 1;
    for (size_t d = 1; d < sizes.size(); ++d) shape.pixels *= sizes[d];
    sizes[0] = options.batch_size;
    const auto contiguous = c10::contiguous_strides(sizes);  // do not depend on the number of rows
    strides.assign(contiguous.begin(), contiguous.end());
    if (format == at::MemoryFormat::ChannelsLast) {
      shape.channels_last = true;
      strides = {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]};
    }
    int64_t buffer_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : sizes) {
      check_that(!__builtin_mul_overflow(buffer_bytes, size, &buffer_bytes), "a batch [{}] has more bytes than can be",
                 fmt::join(sizes, ", "));
    }
    if (options.device->is_cpu()) {
      pool = std::make_shared<BufferPool>(std::max<int64_t>(buffer_bytes, 1), options.num_prefetch + 2);
    }
  }

  void split_channels() {
    shape.channels = sizes[1];
    shape.pixels = sizes[1] == 0 ? 0 : shape.pixels / sizes[1];
  }

  at::Tensor empty(int64_t rows) const {
    auto batch = sizes;
    batch[0] = rows;
    if (pool) return pool->tensor(batch, strides, dtype);
    // libtorch's host allocator knows when copies to the GPU have ended; our pool does not.
    return at::empty(batch, at::TensorOptions(dtype).pinned_memory(true), memory_format);
  }
};

void check(const Samples& samples, const LoaderOptions& options) {
  for (const auto* tensor : {&samples.data, &samples.target}) {
    const char* what = tensor == &samples.data ? "data" : "target";
    check_that(tensor->defined() && tensor->dim() >= 1, "{} must be a tensor [N, ...]", what);
    check_that(tensor->device().is_cpu() && tensor->is_contiguous(), "{} must be contiguous and on the CPU", what);
  }
  const auto& data = samples.data;
  check_that(data.size(0) == samples.target.size(0), "{} samples, but {} targets", data.size(0),
             samples.target.size(0));
  check_that(options.batch_size >= 1, "batch_size {}", options.batch_size);
  check_that(options.num_workers >= 0 && options.num_workers <= 1024, "num_workers {}", options.num_workers);
  check_that(options.num_prefetch >= 1 && options.num_prefetch <= 1 << 20, "num_prefetch {}", options.num_prefetch);
  if (options.memory_format == at::MemoryFormat::ChannelsLast) {
    check_that(data.dim() == 4, "channels_last needs data [N, C, H, W], not [{}]", fmt::join(data.sizes(), ", "));
  } else {
    check_that(options.memory_format == at::MemoryFormat::Contiguous,
               "memory_format must be Contiguous or ChannelsLast");
  }
  if (const auto& normalization = options.normalization) {
    check_that(data.scalar_type() == at::kByte, "only uint8 data are normalised, not {}",
               c10::toString(data.scalar_type()));
    check_that(options.dtype == at::kFloat || options.dtype == at::kBFloat16 || options.dtype == at::kHalf,
               "normalised data are kFloat, kBFloat16 or kHalf, not {}", c10::toString(options.dtype));
    const auto& [mean, stddev] = *normalization;
    const size_t channels = data.dim() >= 2 ? static_cast<size_t>(data.size(1)) : 1;
    check_that(mean.size() == stddev.size() && (mean.size() == 1 || mean.size() == channels),
               "{} means and {} standard deviations for data [{}]; give 1 of each, or one for each of the {} channels",
               mean.size(), stddev.size(), fmt::join(data.sizes(), ", "), channels);
    check_that(std::all_of(stddev.begin(), stddev.end(), [](double value) { return value > 0; }),
               "standard deviations [{}] must be above 0", fmt::join(stddev, ", "));
  }
  // A loader for the CPU asks nothing about GPUs.
  if (!options.device->is_cpu() && at::accelerator::deviceCount() == 0) {
    throw Error(ErrorCode::kFailedPrecondition, "loader: {} is requested, but libtorch sees no GPU",
                options.device->str());
  }
}

LoaderOptions on_device(LoaderOptions options, c10::Device device) {
  if (!options.device) options.device = device;
  return options;
}

template <typename T, typename Round>
detail::ByteTables<T> make_tables(const Normalization& normalization, Round round) {
  detail::ByteTables<T> tables(normalization.mean.size());
  for (size_t c = 0; c < tables.size(); ++c) {
    // float32 throughout and in this order, like torchvision's ToTensor and Normalize.
    const auto mean = static_cast<float>(normalization.mean[c]), stddev = static_cast<float>(normalization.stddev[c]);
    for (size_t x = 0; x < 256; ++x) tables[c][x] = round((static_cast<float>(x) / 255.0f - mean) / stddev);
  }
  return tables;
}

}  // namespace

struct Loader::Impl {
  Impl(Samples samples, const LoaderOptions& given, const DistributedSamplerOptions& share)
      : options(given),
        sampler(share),
        num_samples(samples.data.size(0)),
        data(samples.data, given.normalization ? given.dtype : samples.data.scalar_type(), given.memory_format, given),
        target(samples.target, samples.target.scalar_type(), at::MemoryFormat::Contiguous, given),
        slots(static_cast<size_t>(given.num_prefetch)) {
    if (options.memory_format == at::MemoryFormat::ChannelsLast) data.split_channels();
    if (!options.normalization) return;
    if (options.normalization->mean.size() > 1 && data.shape.channels == 1) data.split_channels();
    if (options.dtype == at::kFloat) {
      float_tables = make_tables<float>(*options.normalization, [](float value) { return value; });
    } else if (options.dtype == at::kBFloat16) {
      half_tables = make_tables<uint16_t>(*options.normalization, [](float value) { return c10::BFloat16(value).x; });
    } else {
      half_tables = make_tables<uint16_t>(*options.normalization, [](float value) { return c10::Half(value).x; });
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

  void gather_data(std::span<const int64_t> rows, at::Tensor& to) const {
    const auto* from = static_cast<const std::byte*>(data.source.const_data_ptr());
    if (!float_tables.empty()) {
      detail::gather_through(reinterpret_cast<const uint8_t*>(from), rows, data.shape, float_tables,
                             static_cast<float*>(to.data_ptr()));
    } else if (!half_tables.empty()) {
      detail::gather_through(reinterpret_cast<const uint8_t*>(from), rows, data.shape, half_tables,
                             static_cast<uint16_t*>(to.data_ptr()));
    } else {
      detail::gather(from, rows, data.shape, data.source.element_size(), static_cast<std::byte*>(to.data_ptr()));
    }
  }

  Batch make(int64_t number) const {
    const auto first = static_cast<size_t>(number * options.batch_size);
    const auto count = std::min(static_cast<size_t>(options.batch_size), indices.size() - first);
    const auto rows = std::span(indices).subspan(first, count);
    Batch batch;
    try {
      batch = {data.empty(static_cast<int64_t>(count)), target.empty(static_cast<int64_t>(count))};
    } catch (const std::bad_alloc&) {
      throw Error(ErrorCode::kUnavailable, "loader: no memory for a batch [{}] {}", fmt::join(data.sizes, ", "),
                  c10::toString(data.dtype));
    }
    gather_data(rows, batch.data);
    detail::gather(static_cast<const std::byte*>(target.source.const_data_ptr()), rows, target.shape,
                   target.source.element_size(), static_cast<std::byte*>(batch.target.data_ptr()));
    return batch;
  }

  void work() {
    pthread_setname_np(pthread_self(), "yoke-loader");
    // Pinned memory belongs to a GPU's context, and a new thread would use that of the first GPU.
    c10::OptionalDeviceGuard guard;
    std::exception_ptr no_device;
    try {
      if (!options.device->is_cpu()) guard.reset_device(*options.device);
    } catch (...) {
      no_device = std::current_exception();
    }
    std::unique_lock lock(mutex);
    while (true) {
      has_work.wait(lock, [&] { return stopping || (next_made < end && next_made < next_given + num_slots()); });
      if (stopping) return;
      const int64_t number = next_made++;
      ++num_busy;
      lock.unlock();
      Slot made{.ready = true, .error = no_device};
      try {
        if (!made.error) made.batch = make(number);
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      --num_busy;
      slots[static_cast<size_t>(number % num_slots())] = std::move(made);
      has_batch.notify_all();
    }
  }

  void start_workers() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals go to the threads that wait for them
    try {
      while (static_cast<int64_t>(workers.size()) < options.num_workers) workers.emplace_back([this] { work(); });
    } catch (const std::exception& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw Error(ErrorCode::kUnavailable, "loader: starting worker {} of {}: {}", workers.size() + 1,
                  options.num_workers, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// The next batch, in the memory in which it was made; nullopt at the end.
  std::optional<Batch> take() {
    if (options.num_workers == 0) {
      if (next_given == end) return std::nullopt;
      return make(next_given++);
    }
    std::unique_lock lock(mutex);
    if (next_given == end) return std::nullopt;
    auto& slot = slots[static_cast<size_t>(next_given % num_slots())];
    has_batch.wait(lock, [&] { return slot.ready; });
    auto taken = std::exchange(slot, {});
    ++next_given;
    lock.unlock();
    has_work.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
  }

  int64_t num_slots() const { return options.num_prefetch; }

  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  const LoaderOptions options;  // its device is always set
  const DistributedSampler sampler;
  const int64_t num_samples;
  int64_t samples_per_batch = 0;  // over all ranks
  Column data, target;
  detail::ByteTables<float> float_tables;  // at most one of the two is filled
  detail::ByteTables<uint16_t> half_tables;

  // Only the caller's thread uses these.
  int64_t epoch = 0;       // the epoch begun last, or the one after it if next() has returned its end
  int64_t num_starts = 0;  // number of orders begun
  bool is_epoch = false;   // an epoch was begun last, and next() has not returned its end
  std::optional<LoaderPosition> resumed;

  std::vector<int64_t> indices;  // changes only while no worker is busy
  std::mutex mutex;              // guards the members below
  std::condition_variable has_work, has_batch;
  std::vector<Slot> slots;  // batch n uses slot n modulo their number
  int64_t next_made = 0;    // number of the batch that the next free worker makes
  int64_t next_given = 0;   // number of the batch that next() returns
  int64_t end = 0;
  int64_t num_busy = 0;
  bool stopping = false;
  std::vector<std::thread> workers;
};

Loader::Loader(Samples samples, const LoaderOptions& options)
    : Loader(std::move(samples), on_device(options, c10::kCPU), {.num_ranks = 1, .rank = 0}) {}

Loader::Loader(Samples samples, const dist::Group& world, const LoaderOptions& options)
    : Loader(std::move(samples), on_device(options, world.device()),
             DistributedSamplerOptions{.num_ranks = world.size(), .rank = world.rank()}) {}

Loader::Loader(Samples samples, const LoaderOptions& options, const DistributedSamplerOptions& share) {
  check(samples, options);
  auto whole_share = share;
  whole_share.num_samples = samples.data.size(0);
  whole_share.shuffle = options.shuffle;
  whole_share.seed = options.seed;
  whole_share.drop_last = options.drop_last;
  whole_share.exact = options.exact;
  impl_ = std::make_unique<Impl>(std::move(samples), options, whole_share);
  impl_->samples_per_batch = options.batch_size * share.num_ranks;
}

Loader::Loader(Loader&&) noexcept = default;
Loader::~Loader() = default;

Loader::Batches Loader::epoch(int64_t epoch) {
  check_that(epoch >= 0, "epoch {}", epoch);
  const bool is_resumed = impl_->resumed && impl_->resumed->epoch == epoch;
  auto batches = start(impl_->sampler.indices(epoch), is_resumed ? impl_->resumed->batch : 0);
  impl_->resumed.reset();
  impl_->epoch = epoch;
  impl_->is_epoch = true;
  return batches;
}

int64_t Loader::num_batches() const { return num_batches(impl_->sampler.size()); }

LoaderPosition Loader::position() const {
  if (impl_->resumed) return *impl_->resumed;
  return {impl_->epoch, impl_->is_epoch ? impl_->next_given : 0, impl_->samples_per_batch};
}

void Loader::resume(const LoaderPosition& given) {
  auto position = given;
  if (given.samples_per_batch > 0 && impl_->samples_per_batch != given.samples_per_batch) {
    const int64_t sample = given.batch * given.samples_per_batch;
    check_that(
        sample % impl_->samples_per_batch == 0,
        "not a position to resume at: {} samples of epoch {} have been read, which is not a multiple of the {} that a "
        "batch of all ranks has here; resume with another batch size or number of ranks",
        sample, given.epoch, impl_->samples_per_batch);
    position.batch = sample / impl_->samples_per_batch;
    position.samples_per_batch = impl_->samples_per_batch;
  }
  check_that(position.epoch >= 0 && position.batch >= 0 && position.batch <= num_batches(),
             "not a position to resume at: batch {} of epoch {}, where an epoch has {} batches", position.batch,
             position.epoch, num_batches());
  impl_->resumed = position;
}

std::string text_of(const LoaderPosition& position) {
  return fmt::format("epoch {}, batch {} of {} samples", position.epoch, position.batch, position.samples_per_batch);
}

void read_text(const std::string& name, const std::string& text, LoaderPosition& position) {
  LoaderPosition read;
  int end = 0;
  const int count = std::sscanf(text.c_str(), "epoch %" SCNd64 ", batch %" SCNd64 " of %" SCNd64 " samples%n",
                                &read.epoch, &read.batch, &read.samples_per_batch, &end);
  if (count != 3 || end != static_cast<int>(text.size())) {
    throw Error(ErrorCode::kDataLoss, "the checkpoint's '{}' is '{}', which is not a position of a loader", name, text);
  }
  position = read;
}

int64_t Loader::num_batches(int64_t num_indices) const {
  const int64_t size = impl_->options.batch_size;
  return num_indices / size + (!impl_->options.drop_last && num_indices % size != 0 ? 1 : 0);
}

Loader::Batches Loader::start(std::vector<int64_t> indices, int64_t first_batch) {
  const auto bad = std::find_if(indices.begin(), indices.end(),
                                [&](int64_t index) { return index < 0 || index >= impl_->num_samples; });
  check_that(bad == indices.end(), "index {} at place {} is outside the {} samples", bad == indices.end() ? 0 : *bad,
             bad - indices.begin(), impl_->num_samples);
  const int64_t count = num_batches(static_cast<int64_t>(indices.size()));
  check_that(first_batch >= 0 && first_batch <= count, "first_batch {} of {} batches", first_batch, count);

  impl_->start_workers();  // first, because after a failure there must be no batches
  {
    std::unique_lock lock(impl_->mutex);
    impl_->end = impl_->next_made;  // no further batch of the old order is begun
    impl_->has_batch.wait(lock, [&] { return impl_->num_busy == 0; });
    for (auto& slot : impl_->slots) slot = {};
    impl_->indices = std::move(indices);
    impl_->next_made = impl_->next_given = first_batch;
    impl_->end = count;
  }
  impl_->has_work.notify_all();
  impl_->is_epoch = false;
  return {*this, ++impl_->num_starts};
}

std::optional<Batch> Loader::next() {
  auto batch = impl_->take();
  if (batch && !impl_->options.device->is_cpu()) {
    for (auto* tensor : {&batch->data, &batch->target})
      *tensor = tensor->to(*impl_->options.device, /*non_blocking=*/true);
  }
  if (!batch && impl_->is_epoch) {
    ++impl_->epoch;
    impl_->is_epoch = false;
  }
  return batch;
}

void Loader::Batches::advance() {
  current_.reset();  // its memory may be reused for the next batch
  if (loader_->impl_->num_starts != number_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "loader: another epoch or order was begun within the loop over this one; use a loader for each");
  }
  current_ = loader_->next();
}

}  // namespace yoke::train
