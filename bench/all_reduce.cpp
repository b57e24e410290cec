// How long does an all-reduce take among CPU ranks that share memory, and over Gloo? Each round measures, one after the
// other: Gloo; shared memory with the same tensor, which lies in ordinary memory, so that large ones are copied; shared
// memory with a tensor that lies in it, as the buckets of DistributedDataParallel do; and a pass of each rank over its
// tensor, which reads and writes as much memory as an all-reduce must. Rank 0 prints medians, and medians of the
// rounds' ratios.
//
//   for n in 2 4; do yoke run --no-prefix -n $n -- bench_all_reduce [--rounds N] [--least-bytes N] [--most-bytes N]
//     [--dtype float|bfloat16|half|double|int|long|byte]; done
//
// On several hosts, or on one that plays two, ranks of different hosts use connections, and no tensor lies in memory of
// all:
//   yoke run --no-prefix -n 4 -- tests/support/on-two-hosts bench_all_reduce
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
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

/// Microseconds of `call`, the mean of `count`.
template <class Call>
double measure(dist::World& world, int count, const Call& call) {
  world.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) call();
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

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string_view, int64_t> numbers = {{"--rounds", 9}, {"--least-bytes", 16}, {"--most-bytes", 64 << 20}};
  auto type = at::kFloat;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const auto number = numbers.find(option);
    const auto value = i + 1 < argc ? parse_int(argv[i + 1]) : std::nullopt;
    if (option == "--dtype" && i + 1 < argc) {
      type = type_of(argv[i + 1]);
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
  const bool has_place = backend.supportsTensorAlloc(0);
  if (shared.rank() == 0) {
    fmt::print("{:>10} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8}\n", "bytes", "gloo us", "copied us", "in place us",
               "pass us", "copied x", "in pl. x");
  }
  for (int64_t bytes = numbers["--least-bytes"]; bytes <= numbers["--most-bytes"]; bytes *= 4) {
    const auto size = bytes / static_cast<int64_t>(at::elementSize(type));
    const auto ordinary = at::zeros({size}, type);  // whose sum stays the same
    const auto inside = has_place ? backend.allocateTensor(size, ordinary.options()).zero_() : ordinary;
    const int count = bytes >= 1 << 20 ? 3 : bytes >= 1 << 14 ? 30 : 300;
    std::vector<double> times[4], ratios[2];
    for (int64_t round = 0; round <= numbers["--rounds"]; ++round) {
      const double now[] = {measure(gloo, count, [&] { gloo.all_reduce(ordinary); }),
                            measure(shared, count, [&] { shared.all_reduce(ordinary); }),
                            has_place ? measure(shared, count, [&] { shared.all_reduce(inside); }) : std::nan(""),
                            measure(shared, count, [&] { ordinary.add_(0); })};
      if (round == 0) continue;  // to warm up
      for (size_t i = 0; i < 4; ++i) times[i].push_back(now[i]);
      for (size_t i = 0; i < 2; ++i) ratios[i].push_back(now[0] / now[i + 1]);
    }
    for (const auto& tensor : {ordinary, inside}) {
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
