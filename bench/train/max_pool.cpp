// How long does max_pool2d of planes take on a CPU? Peer: libtorch's kernel in this program, in turn.
//
//     bench_max_pool [--rounds 30] [--threads 1]
//
// Prints one JSON object for each input and window: medians in ms. If a value or an index differs from libtorch's, the
// program exits with 1.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/train/cpu_speed.h"

namespace {

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rounds = 30, threads = 1;
  for (int i = 1; i < argc; i += 2) {
    const auto number = i + 1 < argc ? yoke::parse_int(argv[i + 1]).value_or(0) : 0;
    const std::string_view option = argv[i];
    if (number < 1 || (option != "--rounds" && option != "--threads")) {
      std::cerr << "bench_max_pool [--rounds N] [--threads N]\n";
      return 2;
    }
    (option == "--rounds" ? rounds : threads) = number;
  }
  at::set_num_threads(static_cast<int>(threads));
  yoke::train::keep_freed_memory();
  const std::vector<std::vector<int64_t>> inputs = {{128, 16, 28, 28}, {64, 64, 11, 11}, {8, 64, 112, 112}};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& sizes : inputs) {
      for (const int64_t window : {2, 3}) {
        const auto x = at::randn(sizes).to(type);
        const std::vector<int64_t> windows{window, window}, strides{2, 2}, paddings{window / 3, window / 3};
        const auto ours = [&] { return at::max_pool2d_with_indices(x, windows, strides, paddings); };
        const auto theirs = [&] { return at::cpu::max_pool2d_with_indices(x, windows, strides, paddings); };
        const auto [y, index] = ours();
        const auto [their_y, their_index] = theirs();
        if (!at::equal(y, their_y) || !at::equal(index, their_index)) return 1;
        std::vector<double> our_ms, their_ms;
        const auto measure = [](const auto& call, std::vector<double>& to) {
          const auto began = std::chrono::steady_clock::now();
          call();
          to.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
        };
        for (int64_t round = 0; round < rounds; ++round) {
          measure(ours, our_ms);
          measure(theirs, their_ms);
        }
        std::cout << nlohmann::ordered_json({{"input", sizes},
                                             {"dtype", c10::toString(type)},
                                             {"window", window},
                                             {"yoke_ms", median(our_ms)},
                                             {"libtorch_ms", median(their_ms)},
                                             {"ratio", median(their_ms) / median(our_ms)}})
                         .dump()
                  << std::endl;
      }
    }
  }
  return 0;
}
