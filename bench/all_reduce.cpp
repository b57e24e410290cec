// How long does an all-reduce take among CPU ranks that share memory, and over Gloo? Each round measures, one after the
// other: Gloo; shared memory with the same tensor, which lies in ordinary memory, so that large ones are copied; shared
// memory with a tensor that lies in it, as the buckets of DistributedDataParallel do; and a pass of each rank over its
// tensor, which reads and writes as much memory as an all-reduce must. Rank 0 prints medians, and medians of the
// rounds' ratios.
//
//   for n in 2 4; do yoke run --no-prefix -n $n -- bench_all_reduce [--rounds N] [--least-bytes N] [--most-bytes N]
//     [--dtype float|bfloat16|half|double|int|long|byte]
//     [--call all_reduce|broadcast|all_to_all|all_gather|reduce_scatter]; done
//
// Of another call than all_reduce nothing is in place, and --least-bytes and --most-bytes are of what a rank gives; of
// a reduce_scatter of all blocks, of an all_to_all of what it gives to all ranks.
//
// On several hosts, or on one that plays two, ranks of different hosts use connections, and no tensor lies in memory of
// all:
//   yoke run --no-prefix -n 4 -- tests/support/on-two-hosts bench_all_reduce
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/median.h"
#include "yoke/dist/world.h"

namespace {

using namespace yoke;

/// Microseconds of `call`, the mean of `count`, until all ranks have what they get.
template <class Call>
double measure(dist::World& world, int count, const Call& call, bool are_all_ready = true) {
  world.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) call();
  if (!are_all_ready) world.barrier();
  const auto end = Clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count() / count;
}

at::ScalarType type_of(std::string_view name) {
  for (const auto& [known, type] :
       std::initializer_list<std::pair<std::string_view, at::ScalarType>>{{"float", at::kFloat},
                                                                          {"bfloat16", at::kBFloat16},
                                                                          {"half", at::kHalf},
                                                                          {"double", at::kDouble},
                                                                          {"int", at::kInt},
                                                                          {"long", at::kLong},
                                                                          {"byte", at::kByte}}) {
    if (name == known) return type;
  }
  throw Error(ErrorCode::kInvalidArgument, "no dtype {}", name);
}

using Call = std::function<void(dist::World& world)>;

/// `tensor` is what a rank gives. The call keeps what it needs.
Call call_of(std::string_view name, const at::Tensor& tensor, int64_t num_ranks) {
  if (name == "all_reduce") return [=](auto& world) { world.all_reduce(tensor); };
  if (name == "broadcast") return [=](auto& world) { world.broadcast(tensor); };
  const auto rows = at::zeros({num_ranks * tensor.numel()}, tensor.options());
  const auto part = rows.narrow(0, 0, std::max<int64_t>(1, tensor.numel() / num_ranks));
  const auto all_parts = tensor.numel() < num_ranks ? rows.narrow(0, 0, num_ranks) : tensor;
  const auto like_all = at::zeros_like(all_parts);
  if (name == "all_to_all") return [=](auto& world) { world.all_to_all(like_all, all_parts); };
  if (name == "all_gather") return [=](auto& world) { world.all_gather_into(rows, tensor); };
  if (name == "reduce_scatter") return [=](auto& world) { world.reduce_scatter(part, all_parts); };
  throw Error(ErrorCode::kInvalidArgument, "no call {}", name);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string_view, int64_t> numbers = {{"--rounds", 9}, {"--least-bytes", 16}, {"--most-bytes", 64 << 20}};
  auto type = at::kFloat;
  std::string_view name = "all_reduce";
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const auto number = numbers.find(option);
    const auto value = i + 1 < argc ? parse_int(argv[i + 1]) : std::nullopt;
    if (option == "--dtype" && i + 1 < argc) {
      type = type_of(argv[i + 1]);
    } else if (option == "--call" && i + 1 < argc) {
      name = argv[i + 1];
    } else if (number != numbers.end() && value) {
      number->second = *value;
    } else {
      fmt::print(
          stderr,
          "bench_all_reduce: '{}' is no option, or lacks its value; the head of bench/all_reduce.cpp lists all\n",
          option);
      return 2;
    }
  }
  at::set_num_threads(1);
  dist::World shared;
  setenv("YOKE_SHARED_MEMORY", "0", 1);
  dist::World gloo;
  auto& backend = *shared.process_group().getBackend(c10::DeviceType::CPU);
  if (backend.getBackendName() != "yoke") throw Error(ErrorCode::kFailedPrecondition, "the ranks do not share memory");
  const bool is_sum = name == "all_reduce", has_place = is_sum && backend.supportsTensorAlloc(0);
  if (shared.rank() == 0) {
    fmt::print("{:>10} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8}\n", "bytes", "gloo us", "copied us", "in place us",
               "pass us", "copied x", "in pl. x");
  }
  for (int64_t bytes = numbers["--least-bytes"]; bytes <= numbers["--most-bytes"]; bytes *= 4) {
    const auto size = bytes / static_cast<int64_t>(at::elementSize(type));
    const auto ordinary = at::zeros({size}, type);  // whose sum stays the same
    const auto inside = has_place ? backend.allocateTensor(size, ordinary.options()).zero_() : ordinary;
    const auto call = call_of(name, ordinary, shared.size());
    const int count = bytes >= 1 << 20 ? 3 : bytes >= 1 << 14 ? 30 : 300;
    std::vector<double> times[4], ratios[2];
    for (int64_t round = 0; round <= numbers["--rounds"]; ++round) {
      const double now[] = {measure(
                                gloo, count, [&] { call(gloo); }, is_sum),
                            measure(
                                shared, count, [&] { call(shared); }, is_sum),
                            has_place ? measure(shared, count, [&] { shared.all_reduce(inside); }) : std::nan(""),
                            measure(shared, count, [&] { ordinary.add_(0); })};
      if (round == 0) continue;  // to warm up
      for (size_t i = 0; i < 4; ++i) times[i].push_back(now[i]);
      for (size_t i = 0; i < 2; ++i) ratios[i].push_back(now[0] / now[i + 1]);
    }
    for (const auto& tensor : {ordinary, inside}) {
      if (!is_sum) break;
      shared.all_reduce(tensor.fill_(1));
      if (!tensor.eq(shared.size()).all().item<bool>()) throw Error(ErrorCode::kInternal, "a wrong sum");
    }
    if (shared.rank() == 0) {
      fmt::print("{:>10} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>8.1f} {:>8.1f}\n", bytes, median(times[0]),
                 median(times[1]), median(times[2]), median(times[3]), median(ratios[0]), median(ratios[1]));
    }
  }
  gloo.shutdown();
  shared.shutdown();
  return 0;
}
