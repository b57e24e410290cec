#include "yoke/dist/world.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/contract/error_file.h"
#include "yoke/contract/failure_place.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/detail/gloo.h"
#include "yoke/dist/detail/group_impl.h"
#include "yoke/dist/detail/mismatch.h"
#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/detail/stop_agreement.h"
#include "yoke/dist/detail/stop_signal.h"
#include "yoke/dist/detail/store.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kInterruptNotice = "Ctrl-C: stopping at the end of a step; a second Ctrl-C kills at once\n";

constexpr milliseconds kShutdownPatience = std::chrono::seconds(30);
/// While a rank waits for the end of the job, it checks at this interval whether another rank waits for it in a
/// collective. The interval grows with the number of ranks.
constexpr milliseconds kLookInterval(500), kLookIntervalOfARank(50);

c10::Device choose_device(const RankEnv& rank, const WorldOptions& options) {
  if (options.device && options.device->is_cpu()) return c10::kCPU;  // a CPU device is always "cpu", without an index
  if (options.device) return *options.device;
  if (const auto* plug = loaded_plug()) {
    const int64_t num_devices = plug->num_devices();
    if (num_devices == 0) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          "the driver shows a device, but libtorch does not (the plug for {} is loaded): the driver may be older than "
          "libtorch needs, or this user may not open /dev/kfd; see `yoke doctor`, or set YOKE_DEVICE=cpu to train "
          "on the CPU",
          plug->name);
    }
    // A launcher may show each rank only its own device (srun --gpus-per-task), or fewer devices than ranks. So the
    // device's number is local_rank modulo the number of visible devices.
    return {plug->device_type, static_cast<c10::DeviceIndex>(rank.local_rank % num_devices)};
  }
  if (plug_status().missing) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this machine has a GPU that yoke cannot use: {}, or set YOKE_DEVICE=cpu to train on the CPU",
                plug_status().reason);
  }
  return c10::kCPU;
}

/// What a rank without a GPU says about its engine of NCCL.
constexpr const char* kNoEngine = "1";
/// Follows the engine if the rank would share memory. Ranks in Python do not say so.
constexpr std::string_view kOffersSharing = " shares";

/// The engine with which this rank communicates on its GPU.
std::string engine_of(c10::Device device) {
  const auto* plug = loaded_plug();
  return device.is_cpu() || plug == nullptr ? kNoEngine : plug->engine();
}

/// Refuses ranks with different engines, which would wait for each other until the timeout. `engines`: of all ranks.
void check_engines(const RankEnv& rank, const std::vector<std::string>& engines) {
  std::map<std::string, std::vector<int64_t>> ranks_of;
  for (size_t other = 0; other < engines.size(); ++other) {
    if (engines[other] != kNoEngine) ranks_of[engines[other]].push_back(static_cast<int64_t>(other));
  }
  if (ranks_of.size() <= 1) return;
  std::string list;
  for (const auto& [engine, ranks] : ranks_of) {
    list += fmt::format("{}{} on {}", list.empty() ? "" : ", ", engine, list_ranks(ranks));
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "rank {}: the ranks' collectives on GPUs have different engines, which do not understand each other: {}; "
              "use one version of torch, and set TORCH_DIST_USE_NCCL2 on all hosts or on none",
              rank.rank, list);
}

/// Every rank sets a key in the store to its engine, and waits for the keys of all ranks. The error names the ranks
/// whose keys are missing. Returns whether each rank would share memory.
std::vector<bool> wait_for_all(c10d::Store& store, const RankEnv& rank, const std::string& engine,
                               milliseconds timeout) {
  store.set(fmt::format("here/{}", rank.rank), offers_shared_memory() ? engine + std::string(kOffersSharing) : engine);
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
      throw Error(ErrorCode::kUnavailable, "rank {}: the ranks' TCPStore at {}:{} no longer answers; rank 0 is gone",
                  rank.rank, rank.master_addr, rank.master_port);
    }
    if (missing.empty()) throw;
    throw Error(ErrorCode::kTimeout, "rank {}: {} {} not joined the job within {:g} s", rank.rank, list_ranks(missing),
                missing.size() == 1 ? "has" : "have", std::chrono::duration<double>(timeout).count());
  }
  std::vector<std::string> engines;
  std::vector<bool> offers;
  for (const auto& bytes : store.multiGet(keys)) {
    auto& text = engines.emplace_back(bytes.begin(), bytes.end());
    offers.push_back(text.ends_with(kOffersSharing));
    if (offers.back()) text.resize(text.size() - kOffersSharing.size());
  }
  if (engine != kNoEngine) check_engines(rank, engines);
  return offers;
}

/// Says why ranks of one host do not share memory, if some would and others would not.
void say_who_does_not_share(const std::vector<bool>& offers) {
  std::vector<int64_t> others;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (!offers[rank]) others.push_back(static_cast<int64_t>(rank));
  }
  if (others.empty() || others.size() == offers.size()) return;
  std::fprintf(stderr,
               "rank 0: collectives of CPU tensors use Gloo: %s in Python, or YOKE_SHARED_MEMORY is 0 there, or the "
               "kernel lacks what they need\n",
               (list_ranks(others) + (others.size() == 1 ? " is" : " are")).c_str());
}

/// Says which engine was chosen where torch has two, for as long as neither has run on GPUs here (docs/dist.md).
void say_engine(const std::string& engine) {
  if (engine == kNoEngine || engine == "nccl") return;
  std::fprintf(stderr, "rank 0: collectives on GPUs use %s, as in Python with this torch (see TORCH_DIST_USE_NCCL2)\n",
               engine.c_str());
}

}  // namespace

World::World(const WorldOptions& options) : World(read_rank_env(Environment::of_process()), options) {}

World::World(const RankEnv& rank, const WorldOptions& options)
    : World(rank, connect_store(rank, options.timeout), options) {}

World::World(const RankEnv& rank, c10::intrusive_ptr<c10d::Store> store, const WorldOptions& options)
    : Group(std::make_shared<Job>(), std::make_shared<Impl>()), stop_signals_(options.stop_signals) {
  job_->env = rank;
  job_->timeout = options.timeout;
  job_->device = choose_device(rank, options);
  job_->gloo_address = gloo_address(rank);
  job_->link_address = link_address(rank);
  job_->store = std::move(store);
  job_->look_for_replacements();
  // The ranks that a new one joins all share memory.
  job_->offers_sharing.assign(static_cast<size_t>(rank.world_size), job_->is_outside);
  impl_->rank = rank.rank;
  for (int64_t other = 0; other < rank.world_size; ++other) impl_->ranks.push_back(other);
  if (rank.world_size > 1 && !job_->is_outside) {
    const auto engine = engine_of(job_->device);
    job_->offers_sharing = wait_for_all(*job_->store, rank, engine, options.timeout);
    if (rank.rank == 0) say_engine(engine);
    if (rank.rank == 0) say_who_does_not_share(job_->offers_sharing);
    if (job_->losses && !std::ranges::all_of(job_->offers_sharing, std::identity())) {
      job_->replace_none("not all ranks share memory (docs/dist.md)");
    }
  }
  if (job_->device.type() != c10::DeviceType::CPU) {
    const auto* plug = loaded_plug();
    if (plug == nullptr || plug->device_type != job_->device.type()) {
      throw Error(ErrorCode::kFailedPrecondition, "no GPU plug is loaded for device {}: {}", job_->device.str(),
                  plug_status().reason);
    }
    plug->set_device(job_->device.index());
  }
  try {
    job_->connect(impl_);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto& silent = job_->earlier->no_answer;
    const auto why =
        silent.empty() ? "; has one of them ended?" : ": " + silent + ": it must allow all ports between hosts;";
    throw Error(ErrorCode::kUnavailable, "rank {}: cannot connect to the other ranks{} {}", rank.rank, why,
                error_text(error));
  }
  if (job_->losses && !job_->is_outside && !is_shared_memory(*impl_->cpu)) {
    job_->replace_none("the ranks cannot share memory, or connect their hosts for it (docs/dist.md)");
  }
  if (rank.world_size == 1) return;
  explain_mismatches([weak = std::weak_ptr(job_), impl = std::weak_ptr(impl_)](const std::string& text) {
    const auto job = weak.lock();
    if (!job || !job->arrivals) return text;
    // The rank's other threads go on meanwhile, and find out what each rank has called.
    const auto interval = job->arrivals->interval();
    for (const auto until = steady_clock::now() + 3 * interval; steady_clock::now() < until;) {
      if (const auto known = job->arrivals->mismatch()) {
        note_failure_cause(known->text, known->cause);
        return fmt::format("rank {}: {}", job->env.rank, known->text);
      }
      std::this_thread::sleep_for(interval / 16);
    }
    const auto whole =
        fmt::format("rank {}: at collective {}, {}", job->env.rank, impl.lock() ? impl.lock()->sequence() : 0, text);
    job->arrivals->report(whole);
    return whole;
  });
}

World::World(World&&) noexcept = default;

World::~World() {
  if (job_ == nullptr) return;
  if (job_->is_forked()) {
    // The rank goes on. Its threads, for which destructors wait, are not in this process, and what these would say and
    // close is the rank's.
    static_cast<void>(new std::shared_ptr<Job>(job_));
    static_cast<void>(stop_.release());
    return;
  }
  if (std::uncaught_exceptions() <= job_->num_exceptions) {
    job_->say_farewell(*impl_);
  } else if (!job_->has_lost_rank) {
    constexpr int64_t kMaxColumns = 200;
    const auto whole = thrown_text();
    const auto text = whole.substr(0, whole.find('\n'));  // libtorch's stack may follow
    report_failure(text.empty() ? "an exception has ended it; its own log says which"
                                : "an exception has ended it: " + fit(printable(text), kMaxColumns));
  }
}

const RankEnv& World::env() const { return job_->env; }

bool World::should_stop() {
  process_group();  // throws after shutdown()
  if (job_->is_outside) return false;
  ++impl_->num_further_calls;
  if (job_->arrivals) impl_->calls.add(impl_->sequence(), "should_stop");
  try {
    if (!stop_) {
      heed_stop_signals(stop_signals_, rank() == 0 ? kInterruptNotice : nullptr);
      c10::intrusive_ptr<c10d::Backend> gloo;
      if (size() > 1) {
        // The new connections wait for all ranks in the store, which does not say that one has failed before it came
        // here. The connections that are there do.
        wait(*impl_->cpu->barrier());
        const auto store = c10::make_intrusive<c10d::PrefixStore>("stop", job_->store);
        if (job_->losses) {  // these connections close at once when a rank was lost
          gloo = job_->share_without_gloo(*store, *impl_);
        } else {
          gloo = make_gloo(store,
                           {.rank = rank(), .size = size(), .address = job_->gloo_address, .timeout = job_->timeout});
        }
      }
      stop_ = std::make_unique<StopAgreement>(std::move(gloo), is_told_to_stop);
    }
    return stop_->should_stop([this](c10d::Work& work) { wait(work); });
  } catch (...) {
    explain(std::current_exception());
  }
}

/// Throws as soon as another rank is found to wait in a collective that this rank will not enter.
void World::wait_for_all_leaving() const {
  const auto deadline = steady_clock::now() + job_->timeout;
  const auto interval = std::max(kLookInterval, kLookIntervalOfARank * size());  // each check reads the numbers of all
                                                                                 // ranks
  std::optional<steady_clock::time_point> ahead_since;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    try {
      job_->store->wait({"all_leaving"}, std::clamp(left, milliseconds(1), interval));
      return;
    } catch (const c10::DistStoreError&) {  // some ranks have not arrived yet
      if (left <= interval) throw;
    }
    if (const auto check = job_->check_of_generation()) check();
    if (job_->is_over_without_some(*impl_)) return;
    const auto ahead = job_->arrivals->describe_ahead();
    if (!ahead) continue;
    // By then all have published how far they are, so it is known whether most are ahead, or a few.
    if (!ahead_since) ahead_since = steady_clock::now();
    if (steady_clock::now() < *ahead_since + 3 * job_->arrivals->interval() / 2) continue;
    note_failure_cause(ahead->text, ahead->cause);
    fail(Error(ErrorCode::kFailedPrecondition, "reached the end of the job too early: {}", ahead->text));
  }
}

void World::shutdown() {
  if (job_ == nullptr || impl_->group == nullptr || job_->is_forked()) return;
  const WithoutWarnings quiet;
  auto& store = *job_->store;
  if (size() > 1) {
    // No rank closes a connection before all ranks are done with it.
    try {
      store.set(fmt::format("leaving/{}", rank()), std::string("1"));
      if (store.add("leaving", 1) == size()) store.set("all_leaving", std::string("1"));
      wait_for_all_leaving();
      if (stop_ && !job_->some_left_early) stop_->finish([this](c10d::Work& work) { wait(work); });
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
        absent.clear();  // the first error says that the store has ended
      }
      if (absent.empty()) explain(error);
      throw Error(ErrorCode::kTimeout, "rank {}: the end of the job timed out after {:g} s: {}", rank(),
                  std::chrono::duration<double>(job_->timeout).count(), job_->arrivals->describe_absent(absent));
    }
  }
  if (job_->losses) {
    job_->base_store->set(kEnded, std::string("1"));
    if (const char* const kept = std::getenv(variable::kRankState)) forget_kept_steps(kept);
  }
  job_->arrivals.reset();
  stop_.reset();
  for (auto group = job_->groups.rbegin(); group != job_->groups.rend(); ++group) {
    if (job_->some_left_early && (*group)->backend != (*group)->cpu) {
      (*group)->backend->abort();  // NCCL's end would wait for all ranks
    } else {
      (*group)->backend->shutdown();
    }
    (*group)->group.reset();
    (*group)->backend.reset();
    (*group)->cpu.reset();
  }
  if (size() > 1 && !env().agent_serves_store && rank() != 0) store.add("left", 1);
  if (size() > 1 && !env().agent_serves_store && rank() == 0) {
    // Rank 0's process serves the store, so it ends last. The wait is short, because a rank may have died while
    // leaving.
    const auto deadline = steady_clock::now() + kShutdownPatience;
    while (store.add("left", 0) < size() - 1 - job_->num_ended && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  job_->store.reset();
  forget_failure_cause();
}

}  // namespace yoke::dist
