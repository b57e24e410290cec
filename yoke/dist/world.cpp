#include "yoke/dist/world.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "yoke/base/error.h"
#include "yoke/dist/arrivals.h"
#include "yoke/dist/gloo.h"
#include "yoke/dist/plug.h"
#include "yoke/dist/stop_agreement.h"
#include "yoke/dist/stop_signal.h"
#include "yoke/dist/store.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kShutdownPatience = std::chrono::seconds(30);
/// A lost connection is the echo of another rank's end. The launcher should hear of that one first, and will then end
/// this rank before it can speak.
constexpr milliseconds kEchoDelay = std::chrono::seconds(1);
/// When that rank has said why it ends, it is surely on its way out: on a busy machine its exit can take seconds.
constexpr milliseconds kEchoDelayAfterReport = std::chrono::seconds(5);
/// How often a rank that waits for the end of the job looks whether another waits for it in a collective.
constexpr milliseconds kLookInterval(500), kLookIntervalOfARank(50);

c10::Device choose_device(const RankEnv& rank, const WorldOptions& options) {
  if (options.device && options.device->is_cpu()) return c10::kCPU;  // tensors are never on "cpu:0"
  if (options.device) return *options.device;
  if (const auto* plug = loaded_plug()) {
    const int64_t num_devices = plug->num_devices();
    if (num_devices == 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the driver shows a device and libtorch does not (a {} plug is loaded): the driver may be older than "
                  "libtorch needs; update it, or set YOKE_DEVICE=cpu to train on the CPU",
                  plug->name);
    }
    // A launcher may show each rank its own device only (srun --gpus-per-task), or fewer devices than ranks.
    return {plug->device_type, static_cast<c10::DeviceIndex>(rank.local_rank % num_devices)};
  }
  if (plug_status().missing) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this machine has a GPU that yoke cannot use: {}; build yoke with its GPU plug, or set YOKE_DEVICE=cpu "
                "to train on the CPU",
                plug_status().reason);
  }
  return c10::kCPU;
}

/// Every rank says that it is here; if some never do, the others learn which.
void wait_for_all(c10d::Store& store, const RankEnv& rank, milliseconds timeout) {
  store.set(fmt::format("here/{}", rank.rank), std::string("1"));
  std::vector<std::string> keys;
  for (int64_t other = 0; other < rank.world_size; ++other) keys.push_back(fmt::format("here/{}", other));
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    std::vector<int64_t> missing;
    try {
      for (int64_t other = 0; other < rank.world_size; ++other) {
        if (!store.check({keys[static_cast<size_t>(other)]})) missing.push_back(other);
      }
    } catch (const std::exception&) {
      throw Error(ErrorCode::kUnavailable, "rank {}: the ranks' store at {}:{} no longer answers; rank 0 is gone",
                  rank.rank, rank.master_addr, rank.master_port);
    }
    if (missing.empty()) throw;
    throw Error(ErrorCode::kTimeout, "rank {}: {} {} not joined the job within {:g} s", rank.rank, list_ranks(missing),
                missing.size() == 1 ? "has" : "have", std::chrono::duration<double>(timeout).count());
  }
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return text.find(word) != text.npos; });
}

/// What backends take: they walk memory, and do not look at strides.
struct Dense {
  explicit Dense(const at::Tensor& tensor) : given(tensor.detach()), sent({given.contiguous()}) {}
  void give_back() const {
    if (!sent[0].is_same(given)) given.copy_(sent[0]);
  }
  at::Tensor given;
  std::vector<at::Tensor> sent;
};

/// libtorch's errors go on with a stack trace.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

}  // namespace

PendingCollective::PendingCollective() = default;
PendingCollective::PendingCollective(PendingCollective&&) noexcept = default;
PendingCollective& PendingCollective::operator=(PendingCollective&&) noexcept = default;
PendingCollective::~PendingCollective() = default;

void PendingCollective::wait() {
  if (!work_) return;
  const auto work = std::exchange(work_, {});
  try {
    work->wait();
  } catch (...) {
    world_->explain(std::current_exception());
  }
  if (sum_.defined()) sum_.div_(world_->size());
  sum_.reset();
  tensors_.clear();
}

struct World::Impl {
  /// How many collectives this rank has entered.
  uint64_t sequence() const { return backend->getSequenceNumberForGroup() + num_stop_calls; }

  const int num_exceptions = std::uncaught_exceptions();  ///< Under way when it was made.
  milliseconds timeout;
  std::vector<int> stop_signals;
  c10::Device device = c10::kCPU;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;  ///< The one that `device` uses.
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::unique_ptr<StopAgreement> stop;  ///< From the first should_stop() on.
  std::atomic<uint64_t> num_stop_calls = 0;
  std::unique_ptr<Arrivals> arrivals;
};

World::World(const WorldOptions& options) : World(read_rank_env(Environment::of_process()), options) {}

World::World(const RankEnv& rank, const WorldOptions& options)
    : World(rank, connect_store(rank, options.timeout), options) {}

World::World(const RankEnv& rank, c10::intrusive_ptr<c10d::Store> store, const WorldOptions& options)
    : env_(rank), impl_(std::make_unique<Impl>()) {
  using c10d::ProcessGroup;
  impl_->timeout = options.timeout;
  impl_->stop_signals = options.stop_signals;
  impl_->device = choose_device(rank, options);
  impl_->store = std::move(store);
  const int rank_number = static_cast<int>(rank.rank);
  const int size = static_cast<int>(rank.world_size);
  if (size > 1) wait_for_all(*impl_->store, rank, options.timeout);

  impl_->group = c10::make_intrusive<ProcessGroup>(impl_->store, rank_number, size);
  // Gloo is there in every world: what lives on the CPU (indices, generator states) is gathered by it.
  auto gloo = make_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", impl_->store), rank, options.timeout);
  impl_->group->setBackend(c10::DeviceType::CPU, ProcessGroup::GLOO, gloo);
  impl_->group->setDefaultBackend(ProcessGroup::GLOO);
  impl_->backend = std::move(gloo);
  if (impl_->device.type() != c10::DeviceType::CPU) {
    const auto* plug = loaded_plug();
    if (plug == nullptr || plug->device_type != impl_->device.type()) {
      throw Error(ErrorCode::kFailedPrecondition, "device {} has no plug: {}", impl_->device.str(),
                  plug_status().reason);
    }
    plug->set_device(impl_->device.index());
    impl_->backend = plug->make_backend(c10::make_intrusive<c10d::PrefixStore>(plug->name, impl_->store), rank_number,
                                        size, options.timeout);
    impl_->group->setBackend(plug->device_type, ProcessGroup::NCCL, impl_->backend);
    impl_->group->setDefaultBackend(ProcessGroup::NCCL);
  }
  // c10d's operators find a group by its name.
  impl_->group->setGroupName(fmt::format("yoke-{}", static_cast<const void*>(impl_->group.get())));
  if (size > 1) {
    const auto interval = std::clamp<milliseconds>(options.timeout / 4, milliseconds(10), milliseconds(1000));
    impl_->arrivals = std::make_unique<Arrivals>(*impl_->store, rank.rank, rank.world_size, interval,
                                                 [impl = impl_.get()] { return impl->sequence(); });
  }
}

World::World(World&&) noexcept = default;

World::~World() {
  if (impl_ != nullptr && std::uncaught_exceptions() > impl_->num_exceptions) {
    report_failure("an exception has ended it; its own log says which");
  }
  // Impl's members go in reverse order: the thread of Arrivals before what it asks.
}

c10::Device World::device() const { return impl_->device; }

c10d::ProcessGroup& World::process_group() const {
  if (impl_ == nullptr || impl_->group == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "this World has been shut down; nothing can be sent through it");
  }
  return *impl_->group;
}

void World::barrier() {
  // One element through the device's own backend: c10d's barrier would need the device named to it.
  const auto element = at::empty({1}, at::TensorOptions().device(impl_->device)).zero_();
  all_reduce(element);
  element.item();  // NCCL's work ends in the stream: this thread waits here
}

void World::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  c10d::AllreduceOptions options;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean: options.reduceOp = c10d::ReduceOp::SUM; break;  // Gloo has no mean
    case ReduceOp::kMin: options.reduceOp = c10d::ReduceOp::MIN; break;
    case ReduceOp::kMax: options.reduceOp = c10d::ReduceOp::MAX; break;
  }
  Dense dense(tensor);
  const bool divides_first = op == ReduceOp::kMean && tensor.scalar_type() == at::kHalf;
  if (divides_first) dense.sent[0].div_(size());
  try {
    process_group().allreduce(dense.sent, options)->wait();
  } catch (...) {
    explain(std::current_exception());
  }
  if (op == ReduceOp::kMean && !divides_first) dense.sent[0].div_(size());
  dense.give_back();
}

void World::broadcast(const at::Tensor& tensor, int64_t root) {
  Dense dense(tensor);
  try {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    process_group().broadcast(dense.sent, options)->wait();
  } catch (...) {
    explain(std::current_exception());
  }
  dense.give_back();
}

at::Tensor World::all_gather(const at::Tensor& tensor) {
  auto shape = tensor.sizes().vec();
  shape.insert(shape.begin(), size());
  auto result = at::empty(shape, tensor.options());
  try {
    std::vector<std::vector<at::Tensor>> outputs = {result.unbind(0)};
    std::vector<at::Tensor> inputs = {tensor.contiguous()};
    process_group().allgather(outputs, inputs)->wait();
  } catch (...) {
    explain(std::current_exception());
  }
  return result;
}

PendingCollective World::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  PendingCollective pending;
  pending.world_ = this;
  pending.tensors_ = {output, input};
  try {
    pending.work_ = process_group()._allgather_base(pending.tensors_[0], pending.tensors_[1]);
  } catch (...) {
    explain(std::current_exception());
  }
  return pending;
}

PendingCollective World::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    throw Error(ErrorCode::kInvalidArgument, "reduce_scatter gives sums and means only");
  }
  PendingCollective pending;
  pending.world_ = this;
  pending.tensors_ = {output, input};
  if (op == ReduceOp::kMean && input.scalar_type() == at::kHalf) {
    pending.tensors_[1] = input.div(size());
  } else if (op == ReduceOp::kMean) {
    pending.sum_ = output;
  }
  try {
    pending.work_ = process_group()._reduce_scatter_base(pending.tensors_[0], pending.tensors_[1]);
  } catch (...) {
    explain(std::current_exception());
  }
  return pending;
}

std::vector<std::string> World::all_gather_text(const std::string& text) {
  // On the CPU, whatever the device: Gloo is in every world.
  const auto lengths = all_gather(at::full({1}, static_cast<int64_t>(text.size()), at::kLong));     // [size, 1]
  const auto padded = at::zeros({std::max<int64_t>(1, lengths.max().item<int64_t>())}, at::kByte);  // Gloo: not empty
  std::memcpy(padded.data_ptr(), text.data(), text.size());
  const auto all = all_gather(padded);  // [size, longest]
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()),
                       static_cast<size_t>(lengths[rank].item<int64_t>()));
  }
  return texts;
}

bool World::should_stop() {
  process_group();  // throws after a shutdown
  ++impl_->num_stop_calls;
  try {
    if (!impl_->stop) {
      heed_stop_signals(impl_->stop_signals);
      c10::intrusive_ptr<c10d::Backend> gloo;
      if (size() > 1) {
        gloo = make_gloo(c10::make_intrusive<c10d::PrefixStore>("stop", impl_->store), env_, impl_->timeout);
      }
      impl_->stop = std::make_unique<StopAgreement>(std::move(gloo), is_told_to_stop);
    }
    return impl_->stop->should_stop();
  } catch (...) {
    explain(std::current_exception());
  }
}

void World::explain(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    const std::string_view text = failure.what();
    const bool timed_out = contains_any(text, {"Timed out", "timed out", "timeout", "Timeout"});
    // Gloo says it in words, c10d's store by type.
    const bool lost =
        dynamic_cast<const c10::DistNetworkError*>(&failure) != nullptr ||
        contains_any(text, {"Connection closed", "Connection reset", "Broken pipe", "Connection refused"});
    if (!(timed_out || lost)) report_failure(first_line(text));
    if (!impl_->arrivals || !(timed_out || lost)) throw;
    const auto sequence = impl_->sequence();
    const auto who = impl_->arrivals->describe();
    if (timed_out) {
      throw Error(ErrorCode::kTimeout, "rank {}: collective {} timed out after {:g} s: {}", rank(), sequence,
                  std::chrono::duration<double>(impl_->timeout).count(), who);
    }
    std::this_thread::sleep_for(impl_->arrivals->has_heard() ? kEchoDelayAfterReport : kEchoDelay);
    throw Error(ErrorCode::kUnavailable, "rank {}: collective {} lost its connection to another rank: {}", rank(),
                sequence, who);
  }
}

void World::report_failure(const std::string& text) const noexcept {
  try {
    if (impl_ != nullptr && impl_->arrivals) impl_->arrivals->report(fmt::format("rank {}: {}", rank(), text));
  } catch (const std::exception&) {  // no memory for the text: the others learn less
  }
}

/// Throws as soon as it is known that another rank waits for this one, which will enter no further collective.
void World::wait_for_all_leaving() const {
  const auto deadline = steady_clock::now() + impl_->timeout;
  const auto interval = std::max(kLookInterval, kLookIntervalOfARank * size());  // each look asks for all ranks
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    try {
      impl_->store->wait({"all_leaving"}, std::clamp(left, milliseconds(1), interval));
      return;
    } catch (const c10::DistStoreError&) {  // not yet
      if (left <= interval) throw;
    }
    if (const auto ahead = impl_->arrivals->describe_ahead()) {
      const auto text = fmt::format("came to the end of the job before its time: {}", *ahead);
      report_failure(text);
      throw Error(ErrorCode::kFailedPrecondition, "rank {} {}", rank(), text);
    }
  }
}

void World::shutdown() {
  if (impl_ == nullptr || impl_->group == nullptr) return;
  auto& store = *impl_->store;
  if (size() > 1) {
    // Nobody closes a connection before all are done with it.
    try {
      store.set(fmt::format("leaving/{}", rank()), std::string("1"));
      if (store.add("leaving", 1) == size()) store.set("all_leaving", std::string("1"));
      wait_for_all_leaving();
      if (impl_->stop) impl_->stop->finish();
    } catch (const Error&) {
      throw;
    } catch (...) {
      const auto error = std::current_exception();
      std::vector<int64_t> absent;
      try {
        for (int64_t other = 0; other < size(); ++other) {
          if (!store.check({fmt::format("leaving/{}", other)})) absent.push_back(other);
        }
      } catch (const std::exception&) {
        absent.clear();  // the store is gone, as the first error says
      }
      if (absent.empty()) explain(error);
      throw Error(ErrorCode::kTimeout, "rank {}: the end of the job timed out after {:g} s: {}", rank(),
                  std::chrono::duration<double>(impl_->timeout).count(), impl_->arrivals->describe_absent(absent));
    }
  }
  impl_->arrivals.reset();
  impl_->stop.reset();
  impl_->backend->shutdown();
  impl_->group.reset();
  impl_->backend.reset();
  if (size() > 1 && !env_.agent_serves_store && rank() != 0) store.add("left", 1);
  if (size() > 1 && !env_.agent_serves_store && rank() == 0) {
    // Rank 0's process serves the store: it ends last. It does not wait long for a rank that died on its way out.
    const auto deadline = steady_clock::now() + kShutdownPatience;
    while (store.add("left", 0) < size() - 1 && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  impl_->store.reset();
}

}  // namespace yoke::dist
