// How long do the operators take that have kernels of yoke's own on a CPU? Peer: libtorch's kernels in this program, in
// turn.
//
//     bench_kernels [--rounds 30] [--threads 1]
//
// Prints one JSON object for each operator and input: medians in ms. If a number differs from libtorch's, the program
// exits with 1.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/train/cpu_speed.h"

namespace {

using Results = std::vector<at::Tensor>;

struct Question {
  std::string name;
  std::function<Results()> ours, theirs;
};

Question max_pool(const std::vector<int64_t>& sizes, at::ScalarType type, int64_t window, at::MemoryFormat format) {
  const auto x = at::randn(sizes).to(type).contiguous(format);
  const std::vector<int64_t> windows{window, window}, strides{2, 2}, paddings{window / 3, window / 3};
  const auto results = [](std::tuple<at::Tensor, at::Tensor> pair) {
    return Results{std::get<0>(pair), std::get<1>(pair)};
  };
  return {
      fmt::format("max_pool2d, window {}{}", window, format == at::MemoryFormat::ChannelsLast ? ", channels_last" : ""),
      [=] { return results(at::max_pool2d_with_indices(x, windows, strides, paddings)); },
      [=] { return results(at::cpu::max_pool2d_with_indices(x, windows, strides, paddings)); }};
}

/// The gradient of windows of two by two in channels_last.
Question max_pool_backward(const std::vector<int64_t>& sizes, at::ScalarType type) {
  const auto x = at::randn(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast);
  const auto [y, index] = at::cpu::max_pool2d_with_indices(x, {2, 2});
  const auto of_x = [x, index = index, gradient = at::randn_like(y)](auto* backward) {
    return Results{backward(gradient, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, index)};
  };
  return {"max_pool2d, window 2, channels_last, backward", [=] { return of_x(&at::max_pool2d_with_indices_backward); },
          [=] { return of_x(&at::cpu::max_pool2d_with_indices_backward); }};
}

/// What dropout draws.
Question bernoulli(const std::vector<int64_t>& sizes, at::ScalarType type) {
  const auto x = at::empty(sizes, type);
  auto ours = at::detail::createCPUGenerator(1), theirs = at::detail::createCPUGenerator(1);
  return {"bernoulli_ of dropout", [=] { return Results{at::empty_like(x).bernoulli_(0.9, ours)}; },
          [=] {
            auto y = at::empty_like(x);
            at::cpu::bernoulli_(y, 0.9, theirs);
            return Results{y};
          }};
}

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
      std::cerr << "bench_kernels [--rounds N] [--threads N]\n";
      return 2;
    }
    (option == "--rounds" ? rounds : threads) = number;
  }
  at::set_num_threads(static_cast<int>(threads));
  yoke::train::keep_freed_memory();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{128, 16, 28, 28}, {64, 64, 11, 11}, {8, 64, 112, 112}}) {
      constexpr auto kPlanes = at::MemoryFormat::Contiguous, kChannelsLast = at::MemoryFormat::ChannelsLast;
      const Question questions[] = {max_pool(sizes, type, 2, kPlanes),       max_pool(sizes, type, 3, kPlanes),
                                    max_pool(sizes, type, 2, kChannelsLast), max_pool(sizes, type, 3, kChannelsLast),
                                    max_pool_backward(sizes, type),          bernoulli(sizes, type)};
      for (const auto& question : questions) {
        std::vector<double> our_ms, their_ms;
        const auto measure = [](const auto& call, std::vector<double>& to) {
          const auto began = std::chrono::steady_clock::now();
          auto results = call();
          to.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
          return results;
        };
        for (int64_t round = 0; round < rounds; ++round) {
          const auto ours = measure(question.ours, our_ms), theirs = measure(question.theirs, their_ms);
          if (std::equal(ours.begin(), ours.end(), theirs.begin(), &at::equal)) continue;
          std::cerr << question.name << " of " << nlohmann::json(sizes) << " differs from libtorch's\n";
          return 1;
        }
        std::cout << nlohmann::ordered_json({{"operator", question.name},
                                             {"input", sizes},
                                             {"dtype", c10::toString(type)},
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
