// How long does an optimizer's step take, alone and as part of a whole training step? Peers: libtorch's torch::optim in
// this program, and peers/optimizers.py. `bench/optimizers` runs all of them in turn.
//
//     bench_optimizers [--seconds 0.2]        the time of each measurement
//
// Networks 64-h-h-10 with ReLU, h = 64 and 256, batch 64, one thread. Prints one JSON object: microseconds per step, as
// medians over chunks of 50 steps, with the keys "WIDTH OPTIMIZER step|whole yoke|libtorch". Before measuring, compares
// 30 steps of yoke's and libtorch's optimizers. If they differ by more than rounding, the program exits with 1.
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/cpu_speed.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"

namespace {

using yoke::train::Optimizer;
using Clock = std::chrono::steady_clock;

constexpr int kChunk = 50;

struct Network {
  explicit Network(int64_t width) {
    model->push_back(torch::nn::Linear(64, width));
    model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(width, 10));
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kDouble).sin().mul(0.1).view(parameter.sizes()));
    }
  }

  void backward() { at::cross_entropy_loss(model->forward(x), y).backward(); }

  torch::nn::Sequential model;
  at::Tensor x = at::arange(64 * 64, at::kDouble).cos().to(at::kFloat).view({64, 64}), y = at::arange(64).remainder(10);
};

// An optimizer of yoke or libtorch, as functions.
struct Stepper {
  std::function<void()> step, zero_grad;
};

template <class Kind, class Options>
Stepper yokes(const Network& network, const Options& options) {
  auto optimizer = std::make_shared<Kind>(network.model->named_parameters().pairs(), options);
  return {[optimizer] { optimizer->step(); }, [optimizer] { optimizer->zero_grad(); }};
}

template <class Kind, class Options>
Stepper libtorchs(const Network& network, const Options& options) {
  auto optimizer = std::make_shared<Kind>(network.model->parameters(), options);
  return {[optimizer] { optimizer->step(); }, [optimizer] { optimizer->zero_grad(); }};
}

struct Case {
  const char* name;
  std::function<Stepper(const Network&)> yoke, libtorch;
};

std::vector<Case> cases() {
  using namespace yoke::train;
  return {
      {"AdamW", [](const auto& n) { return yokes<AdamW>(n, AdamWOptions{.lr = 1e-3}); },
       [](const auto& n) { return libtorchs<torch::optim::AdamW>(n, torch::optim::AdamWOptions(1e-3)); }},
      {"Adam", [](const auto& n) { return yokes<Adam>(n, AdamOptions{.lr = 1e-3}); },
       [](const auto& n) { return libtorchs<torch::optim::Adam>(n, torch::optim::AdamOptions(1e-3)); }},
      {"SGD", [](const auto& n) { return yokes<Sgd>(n, SgdOptions{.lr = 1e-3, .momentum = 0.9}); },
       [](const auto& n) { return libtorchs<torch::optim::SGD>(n, torch::optim::SGDOptions(1e-3).momentum(0.9)); }},
      {"Adagrad", [](const auto& n) { return yokes<Adagrad>(n, AdagradOptions{.lr = 1e-3}); },
       [](const auto& n) { return libtorchs<torch::optim::Adagrad>(n, torch::optim::AdagradOptions(1e-3)); }},
  };
}

bool agree(const Case& one) {
  Network ours(64), theirs(64);
  const auto yoke = one.yoke(ours), libtorch = one.libtorch(theirs);
  for (int i = 0; i < 30; ++i) {
    for (auto* network : {&ours, &theirs}) {
      const auto& stepper = network == &ours ? yoke : libtorch;
      stepper.zero_grad();
      network->backward();
      stepper.step();
    }
  }
  const auto a = ours.model->parameters(), b = theirs.model->parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::allclose(a[i], b[i], 1e-3, 1e-5)) return false;
  }
  return true;
}

// Times the calls of one chunk, and returns `times` with the microseconds per call appended.
std::vector<double> time_chunk(std::vector<double> times, const std::function<void()>& call) {
  const auto start = Clock::now();
  for (int i = 0; i < kChunk; ++i) call();
  times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kChunk);
  return times;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(int64_t width, const Case& one, double seconds, nlohmann::json& result) {
  for (const bool is_whole : {false, true}) {
    Network ours(width), theirs(width);
    const auto yoke = one.yoke(ours), libtorch = one.libtorch(theirs);
    const auto call = [is_whole](Network& network, const Stepper& stepper) -> std::function<void()> {
      if (!is_whole) {
        network.backward();
        return stepper.step;
      }
      return [&network, &stepper] {
        stepper.zero_grad();
        network.backward();
        stepper.step();
      };
    };
    const auto of_yoke = call(ours, yoke), of_libtorch = call(theirs, libtorch);
    std::vector<double> yoke_times, libtorch_times;
    time_chunk({}, of_yoke);
    time_chunk({}, of_libtorch);
    for (const auto end = Clock::now() + std::chrono::duration<double>(2 * seconds); Clock::now() < end;) {
      yoke_times = time_chunk(std::move(yoke_times), of_yoke);
      libtorch_times = time_chunk(std::move(libtorch_times), of_libtorch);
    }
    const auto key = std::to_string(width) + " " + one.name + (is_whole ? " whole" : " step");
    result[key + " yoke"] = median(yoke_times);
    result[key + " libtorch"] = median(libtorch_times);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc == 3 && std::string_view(argv[1]) == "--seconds" ? std::atof(argv[2]) : 0.2;
  at::set_num_threads(1);
  yoke::train::flush_denormals();
  nlohmann::json result;
  for (const auto& one : cases()) {
    if (!agree(one)) {
      std::cerr << "optimizers: yoke's and libtorch's " << one.name << " disagree\n";
      return 1;
    }
    for (const int64_t width : {64, 256}) measure(width, one, seconds, result);
  }
  std::cout << result.dump(2) << '\n';
  return 0;
}
