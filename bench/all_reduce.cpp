// How long does an all-reduce take among CPU ranks that share memory, and over Gloo? Each round measures both, one
// after the other, with the same tensor. Rank 0 prints medians, and the median of the rounds' ratios.
//
//   for n in 2 4; do yoke run --no-prefix -n $n -- bench_all_reduce [--rounds N] [--most-bytes N]; done
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/median.h"
#include "yoke/dist/world.h"

namespace {

using namespace yoke;

/// Microseconds of an all-reduce, the mean of `count`.
double measure(dist::World& world, const at::Tensor& tensor, int count) {
  world.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) world.all_reduce(tensor);
  const auto end = Clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count() / count;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rounds = 9, most_bytes = 64 << 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto value = parse_int(argv[i + 1]).value();
    (std::string_view(argv[i]) == "--rounds" ? rounds : most_bytes) = value;
  }
  at::set_num_threads(1);
  setenv("YOKE_SHARED_MEMORY", "1", 1);
  dist::World shared;
  setenv("YOKE_SHARED_MEMORY", "0", 1);
  dist::World gloo;
  if (shared.rank() == 0) fmt::print("{:>12} {:>12} {:>12} {:>8}\n", "bytes", "gloo us", "shared us", "ratio");
  for (int64_t bytes = 16; bytes <= most_bytes; bytes *= 4) {
    const auto tensor = at::zeros({bytes / 4});  // whose sum stays the same
    const int count = bytes >= 1 << 20 ? 3 : bytes >= 1 << 14 ? 30 : 300;
    std::vector<double> of_gloo, of_shared, ratios;
    for (int64_t round = 0; round <= rounds; ++round) {
      const double first = measure(gloo, tensor, count), second = measure(shared, tensor, count);
      if (round == 0) continue;  // to warm up
      of_gloo.push_back(first);
      of_shared.push_back(second);
      ratios.push_back(first / second);
    }
    shared.all_reduce(tensor.fill_(1));
    if (tensor.min().item<float>() != static_cast<float>(shared.size())) return 1;
    if (shared.rank() == 0) {
      fmt::print("{:>12} {:>12.1f} {:>12.1f} {:>8.1f}\n", bytes, median(of_gloo), median(of_shared), median(ratios));
    }
  }
  gloo.shutdown();
  shared.shutdown();
  return 0;
}
