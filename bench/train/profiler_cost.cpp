// How much longer does a step take while train::Profiler records it? Blocks of steps alternate between no profiler,
// recording of annotations only, and recording of all operations, so that other programs disturb all three equally.
//
//   bench_profiler_cost [--rounds N]
//
// Prints JSON. For networks of several sizes it has the median processor time of a step, the cost of both kinds of
// recording, and the time to begin and to write a recording. It also has the cost for a step that nobody records.
#include <ATen/record_function.h>
#include <stdlib.h>
#include <time.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/train.h"
#include "yoke/train/watch/detail/profile_agent.h"

namespace {

namespace train = yoke::train;
using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int kStepsInBlock = 10;

/// The processor time of this thread, which does all the work. It does not include the time of other programs.
double processor_ms() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Network {
  explicit Network(int64_t width, int64_t batch)
      : model(torch::nn::Linear(256, width), torch::nn::ReLU(), torch::nn::Linear(width, width), torch::nn::ReLU(),
              torch::nn::Linear(width, 10)),
        optimizer(model, {.lr = 1e-4}),
        x(at::randn({batch, 256})),
        y(at::randint(10, {batch})) {}

  void step() {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(x), y).backward();
    optimizer.step();
  }

  torch::nn::Sequential model;
  train::Sgd optimizer;
  at::Tensor x, y;
};

enum class Mode { kOff, kLight, kFull };

/// Times the steps of a block, except the last one, which writes the trace.
void run_block(Network& network, Mode mode, const std::string& folder, std::vector<double>& steps_ms,
               std::vector<double>& write_ms) {
  std::optional<train::Profiler> profiler;
  if (mode != Mode::kOff) {
    profiler.emplace(0, 1,
                     train::ProfilerOptions{.folder = folder,
                                            .wait = 0,
                                            .warmup = 0,
                                            .active = kStepsInBlock,
                                            .light = mode == Mode::kLight,
                                            .steps_by_hand = true});
  }
  for (int i = 0; i < kStepsInBlock; ++i) {
    const auto begin = processor_ms();
    network.step();
    const bool is_last = i + 1 == kStepsInBlock;
    if (profiler && !is_last) profiler->step();
    if (!is_last && i > 0) steps_ms.push_back(processor_ms() - begin);
  }
  const auto begin = Clock::now();
  if (profiler) profiler->step();
  write_ms.push_back(ms_since(begin));
}

ordered_json cost_of(const char* name, int64_t width, int64_t batch, int rounds, const std::string& folder) {
  Network network(width, batch);
  for (int i = 0; i < 5; ++i) network.step();
  std::map<Mode, std::vector<double>> steps_ms, write_ms;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 3; ++i) {
      const auto mode = static_cast<Mode>((round + i) % 3);
      run_block(network, mode, folder, steps_ms[mode], write_ms[mode]);
    }
  }
  const double off = median(steps_ms[Mode::kOff]);
  const auto percent = [&](Mode mode) { return 100 * (median(steps_ms[mode]) / off - 1); };
  return {{"network", name},
          {"step_ms", off},
          {"annotations_percent", percent(Mode::kLight)},
          {"operations_percent", percent(Mode::kFull)},
          {"write_annotations_ms", median(write_ms[Mode::kLight])},
          {"write_operations_ms", median(write_ms[Mode::kFull])}};
}

template <class Call>
double ns_each(int count, Call call) {
  const auto begin = processor_ms();
  for (int i = 0; i < count; ++i) call();
  return (processor_ms() - begin) * 1e6 / count;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? atoi(argv[2]) : 15;
  at::set_num_threads(1);
  char folder[] = "/tmp/yoke-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  ordered_json result;
  result["rounds"] = rounds;
  result["steps_in_block"] = kStepsInBlock;
  for (const auto& [name, width, batch] : {std::tuple("small", 64, 32), {"medium", 512, 128}, {"large", 1024, 256}}) {
    result["networks"].push_back(cost_of(name, width, batch, rounds, folder));
  }
  result["annotation_without_profiler_ns"] = ns_each(1'000'000, [] { RECORD_USER_SCOPE("data_loading"); });
  const auto agent = train::detail::make_profile_agent();
  result["question_at_end_of_step_ns"] = ns_each(100'000, [&] { agent->on_step(0); });
  std::filesystem::remove_all(folder);
  std::cout << result.dump(1) << '\n';
  return 0;
}
