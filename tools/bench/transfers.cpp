// The exercises about data transfers: copies and all-reduce.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/bench/measure.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/dist/world.h"
#include "yoke/train/device/devices.h"

namespace yoke::exercise {
namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

double total_of(const std::vector<int64_t>& sizes) {
  double total = 0;
  for (const int64_t size : sizes) total += static_cast<double>(size);
  return total;
}

struct Route {
  c10::Device from, to;
  bool is_pinned = false;
};

at::Tensor bytes_on(c10::Device device, int64_t num_bytes, bool is_pinned) {
  auto options = at::TensorOptions().dtype(at::kByte);
  if (!device.is_cpu()) return at::empty({num_bytes}, options.device(device));
  return at::empty({num_bytes}, options.pinned_memory(is_pinned));
}

std::vector<Route> all_routes() {
  const c10::Device cpu(c10::kCPU);
  if (train::num_gpus() == 0) return {{cpu, cpu}};
  std::vector<Route> routes;
  for (const auto gpu : train::try_all_gpus()) {
    for (const bool is_pinned : {true, false}) {
      routes.push_back({cpu, gpu, is_pinned});
      routes.push_back({gpu, cpu, is_pinned});
    }
    routes.push_back({gpu, gpu});
  }
  if (train::num_gpus() >= 2) routes.push_back({train::try_gpu(0), train::try_gpu(1)});
  return routes;
}

std::string memory_name(const Route& route) {
  if (!route.from.is_cpu() && !route.to.is_cpu()) return "device";
  return route.is_pinned ? "pinned" : "pageable";
}

Json row_of(const Route& route, int64_t num_bytes) {
  const bool is_in_memory = route.from.is_cpu() && route.to.is_cpu();
  const auto name = [&](c10::Device device) {
    return is_in_memory ? "memory" : device.is_cpu() ? "host" : device.str();
  };
  return {{"from", name(route.from)}, {"to", name(route.to)}, {"memory", memory_name(route)}, {"bytes", num_bytes}};
}

}  // namespace

Json run_copies(const Task& task, Progress& progress) {
  const at::NoGradGuard no_grad;
  const auto sizes =
      task.chosen(task.sizes, {4 * kKiB, 4 * kMiB}, {4 * kKiB, 64 * kKiB, 512 * kKiB, 4 * kMiB, 32 * kMiB, 128 * kMiB});
  check_memory(3.0 * static_cast<double>(all_routes().size()) * total_of(sizes));
  std::vector<Case> cases;
  Json results = Json::array();
  for (const auto& route : all_routes()) {
    for (const int64_t size : sizes) {
      const auto from = bytes_on(route.from, size, route.is_pinned), to = bytes_on(route.to, size, route.is_pinned);
      from.copy_(at::randint(256, {size}, at::TensorOptions().dtype(at::kByte)));
      to.zero_();
      to.copy_(from);
      if (!at::equal(to.cpu(), from.cpu())) {
        throw Error(ErrorCode::kInternal, "a copy from {} to {} has other bytes", route.from.str(), route.to.str());
      }
      const auto device = route.to.is_cpu() ? route.from : route.to;
      auto row = row_of(route, size);
      cases.push_back({fmt::format("{} to {}, {}", row["from"].get<std::string>(), row["to"].get<std::string>(),
                                   format_bytes(size)),
                       [from, to, device](int64_t count) {
                         for (int64_t i = 0; i < count; ++i) to.copy_(from, /*non_blocking=*/true);
                         wait_for(device);
                       }});
      results.push_back(std::move(row));
    }
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < cases.size(); ++i) {
    add_times(results[i], "time", times[i]);
    results[i]["gb_per_second"] = results[i]["bytes"].get<double>() / times[i].median() / 1e9;
  }
  Json object;
  if (train::num_gpus() == 0) {
    object["notes"] = {"no GPU here: copies between host and device, and pinned memory, were not measured"};
  }
  object["results"] = results;
  return object;
}

namespace {

/// An all-reduce of a given size, on all ranks.
class Reduction {
 public:
  Reduction(dist::World& world, int64_t num_bytes)
      : world_(world), tensor_(at::zeros({num_bytes / 4}, at::TensorOptions(world.device()))) {}

  /// Collective. Throws unless the all-reduce gives the right sum of (rank + 1).
  void check() {
    tensor_.fill_(static_cast<double>(world_.rank() + 1));
    world_.all_reduce(tensor_);
    const double expected = static_cast<double>(world_.size() * (world_.size() + 1)) / 2;
    if (!tensor_.eq(expected).all().item<bool>()) {
      world_.fail(Error(ErrorCode::kInternal, "the all-reduce of {} numbers is wrong", tensor_.numel()));
    }
    tensor_.zero_();
  }

  /// Collective. Runs `count` all-reduces, and returns the seconds of one on the slowest rank.
  double seconds(int64_t count) {
    world_.barrier();
    const double start = now_seconds();
    for (int64_t i = 0; i < count; ++i) world_.all_reduce(tensor_);
    wait_for(world_.device());
    return slowest((now_seconds() - start) / static_cast<double>(count));
  }

  /// Collective. Multiplies the matrices `count` times, beside an all-reduce if `communicates`, and returns the seconds
  /// of the products on the slowest rank.
  double compute_seconds(const at::Tensor& one, const at::Tensor& other, int64_t count, bool communicates) {
    world_.barrier();
    const auto device = world_.device();
    const double start = now_seconds();
    dist::PendingCollective pending;
    if (communicates) pending = world_.start_all_reduce(tensor_);
    for (int64_t i = 0; i < count; ++i) at::mm(one, other);
    if (!device.is_cpu()) {  // waits for the products, and not for the all-reduce, which has a stream of its own
      const c10::impl::VirtualGuardImpl guard(device.type());
      c10::Event computed(device.type());
      computed.record(guard.getStream(device));
      computed.synchronize();
    }
    const double passed = now_seconds() - start;
    if (communicates) pending.wait();
    wait_for(device);
    return slowest(passed);
  }

  int64_t num_bytes() const { return tensor_.numel() * 4; }

 private:
  double slowest(double seconds) {
    const auto value = at::zeros({1}, at::TensorOptions(world_.device()).dtype(at::kDouble)).fill_(seconds);
    world_.all_reduce(value, dist::ReduceOp::kMax);
    return value.item<double>();
  }

  dist::World& world_;
  at::Tensor tensor_;
};

std::vector<Times> measure_reductions(std::vector<Reduction>& reductions, const Task& task, Progress& progress) {
  std::vector<int64_t> counts;
  for (auto& one : reductions) {
    progress.show(format_bytes(one.num_bytes()));
    one.check();
    one.seconds(1);
    // All ranks get the same time from seconds(), so they use the same counts and the same number of rounds.
    counts.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(2e-3 / one.seconds(1))), 1, 1000));
  }
  std::vector<Times> all(reductions.size());
  double spent = 0;
  for (int64_t round = 0; round < 3 || spent < task.seconds; ++round) {
    for (size_t i = 0; i < reductions.size(); ++i) {
      const auto number = (i + static_cast<size_t>(round)) % reductions.size();
      progress.show(fmt::format("{}, round {}, {:.0f} of {:.0f} s", format_bytes(reductions[number].num_bytes()),
                                round + 1, spent, task.seconds));
      all[number].seconds.push_back(reductions[number].seconds(counts[number]));
      spent += all[number].seconds.back() * static_cast<double>(counts[number]);
    }
  }
  for (auto& one : reductions) one.check();
  return all;
}

/// Collective. By how much an all-reduce delays what the slowest rank computes beside it, in percent of the time that
/// the all-reduce takes alone, `alone_seconds`.
double compute_delay_percent(Reduction& reduction, double alone_seconds, dist::World& world, double seconds) {
  constexpr int64_t kWarmUp = 20;
  constexpr int kMostRounds = 15, kFewestRounds = 3;
  const int64_t size = world.device().is_cpu() ? 256 : 2048;
  const auto one = at::rand({size, size}, at::TensorOptions(world.device())), other = at::rand_like(one);
  reduction.compute_seconds(one, other, kWarmUp, false);
  // An all-reduce takes longer beside computing than alone, and must end before the products do. All ranks get the same
  // times, so they have the same count.
  const double product_seconds = reduction.compute_seconds(one, other, kWarmUp, false) / kWarmUp;
  const auto count = static_cast<int64_t>(std::ceil(std::max(4 * alone_seconds, 0.01) / product_seconds));
  Times alone, beside;
  double spent = 0;
  for (int round = 0; round < kFewestRounds || (round < kMostRounds && spent < seconds); ++round) {
    alone.seconds.push_back(reduction.compute_seconds(one, other, count, false));
    beside.seconds.push_back(reduction.compute_seconds(one, other, count, true));
    spent += alone.seconds.back() + beside.seconds.back();
  }
  return 100 * (beside.median() - alone.median()) / alone_seconds;
}

/// The largest size that is not above that of DistributedDataParallel's buckets, or else the first one.
size_t number_of_bucket(const std::vector<Reduction>& reductions) {
  size_t chosen = 0;
  for (size_t i = 0; i < reductions.size(); ++i) {
    const auto bytes = reductions[i].num_bytes();
    if (bytes <= 25 * kMiB && bytes > reductions[chosen].num_bytes()) chosen = i;
  }
  return chosen;
}

}  // namespace

Json run_all_reduce(const Task& task) {
  const at::NoGradGuard no_grad;
  dist::World world;
  Progress progress(task.name, world.rank() == 0);
  const auto sizes =
      task.chosen(task.sizes, {kKiB, kMiB}, {kKiB, 16 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB});
  if (world.rank() == 0 && world.device().is_cpu())
    check_memory(static_cast<double>(world.local_size()) * total_of(sizes));
  std::vector<Reduction> reductions;
  for (const int64_t size : sizes) reductions.emplace_back(world, std::max<int64_t>(4, size));
  const auto times = measure_reductions(reductions, task, progress);
  Json results = Json::array();
  for (size_t i = 0; i < reductions.size(); ++i) {
    Json row{{"bytes", reductions[i].num_bytes()}};
    add_times(row, "time", times[i]);
    const double rate = static_cast<double>(reductions[i].num_bytes()) / times[i].median() / 1e9;
    const auto n = static_cast<double>(world.size());
    row["algorithm_gb_per_second"] = rate;
    row["bus_gb_per_second"] = rate * 2 * (n - 1) / n;  // bus bandwidth as in doc/PERFORMANCE.md of nccl-tests
    results.push_back(std::move(row));
  }
  Json object{{"device", world.device().str()},
              {"backend", world.device().is_cpu() ? "gloo" : "nccl"},
              {"num_ranks", world.size()},
              {"num_nodes", (world.size() + world.local_size() - 1) / world.local_size()}};
  if (world.size() > 1) {
    const auto chosen = number_of_bucket(reductions);
    progress.show("computing beside " + format_bytes(reductions[chosen].num_bytes()));
    object["compute_delay_percent"] =
        compute_delay_percent(reductions[chosen], times[chosen].median(), world, task.seconds);
  }
  object["results"] = results;
  const bool is_first = world.rank() == 0;
  world.shutdown();
  return is_first ? object : Json();
}

}  // namespace yoke::exercise
