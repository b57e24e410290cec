// How long does a message take from one rank to another that shares its memory, and over Gloo? Each round measures, for
// both in turn: half of the way there and back, and one of eight messages that are in flight at once. Rank 0 prints
// medians, and medians of the rounds' ratios.
//
//   yoke run --no-prefix -n 2 -- bench_messages [--rounds N] [--least-bytes N] [--most-bytes N]
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/median.h"
#include "yoke/dist/world.h"

namespace {

using namespace yoke;

constexpr int kInFlight = 8;

/// Microseconds of `call`, the mean of `count`.
template <class Call>
double measure(dist::World& world, int count, const Call& call) {
  world.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) call();
  world.barrier();  // a message may have been sent long before it is received
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / count;
}

double there_and_back(dist::World& world, int count, const at::Tensor& tensor) {
  return measure(world, count,
                 [&] {
                   if (world.rank() == 0) {
                     world.send(tensor, 1);
                     world.receive(tensor, 1);
                   } else {
                     world.receive(tensor, 0);
                     world.send(tensor, 0);
                   }
                 }) /
         2;
}

double one_of_several(dist::World& world, int count, const at::Tensor& tensor) {
  return measure(
             world, count,
             [&] {
               std::vector<dist::PendingCollective> pending;
               for (int i = 0; i < kInFlight; ++i) {
                 pending.push_back(world.rank() == 0 ? world.start_send(tensor, 1) : world.start_receive(tensor, 0));
               }
               for (auto& one : pending) one.wait();
             }) /
         kInFlight;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string_view, int64_t> numbers = {{"--rounds", 9}, {"--least-bytes", 16}, {"--most-bytes", 64 << 20}};
  for (int i = 1; i < argc; i += 2) {
    const auto number = numbers.find(argv[i]);
    const auto value = i + 1 < argc ? parse_int(argv[i + 1]) : std::nullopt;
    if (number == numbers.end() || !value) {
      fmt::print(stderr,
                 "bench_messages: '{}' is no option, or lacks its value; the head of bench/messages.cpp lists all\n",
                 argv[i]);
      return 2;
    }
    number->second = *value;
  }
  at::set_num_threads(1);
  dist::World shared;
  setenv("YOKE_SHARED_MEMORY", "0", 1);
  dist::World gloo;
  if (shared.size() != 2) throw Error(ErrorCode::kInvalidArgument, "bench_messages needs two ranks");
  if (shared.rank() == 0) {
    fmt::print("{:>10} {:>11} {:>11} {:>8} {:>16} {:>16} {:>8}\n", "bytes", "gloo us", "shared us", "ratio",
               "several: gloo us", "shared us", "ratio");
  }
  for (int64_t bytes = numbers["--least-bytes"]; bytes <= numbers["--most-bytes"]; bytes *= 16) {
    const auto tensor = at::zeros({bytes}, at::kByte);
    const int count = bytes >= 1 << 20 ? 2 : bytes >= 1 << 14 ? 20 : 200;
    std::vector<double> times[4], ratios[2];
    for (int64_t round = 0; round <= numbers["--rounds"]; ++round) {
      const double now[] = {there_and_back(gloo, count, tensor), there_and_back(shared, count, tensor),
                            one_of_several(gloo, count, tensor), one_of_several(shared, count, tensor)};
      if (round == 0) continue;  // to warm up
      for (size_t i = 0; i < 4; ++i) times[i].push_back(now[i]);
      for (size_t i = 0; i < 2; ++i) ratios[i].push_back(now[2 * i] / now[2 * i + 1]);
    }
    if (shared.rank() == 0) {
      fmt::print("{:>10} {:>11.1f} {:>11.1f} {:>8.1f} {:>16.1f} {:>16.1f} {:>8.1f}\n", bytes, median(times[0]),
                 median(times[1]), median(ratios[0]), median(times[2]), median(times[3]), median(ratios[1]));
    }
  }
  gloo.shutdown();
  shared.shutdown();
  return 0;
}
