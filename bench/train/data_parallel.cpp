// What does DataParallel cost, compared with libtorch's data_parallel, and how does data_parallel change a model?
//
//     bench_data_parallel [--rounds 20]
//
// torch::nn::parallel::data_parallel itself needs CUDA, because its scatter and gather are in libtorch_cuda. Its other
// two parts, `replicate` and `parallel_apply`, run on any device. Here they are combined with chunk and cat. The device
// list is {cpu, cpu}: two replicas, two threads. Prints one JSON object. For each model it has the median milliseconds
// of a forward and backward of the model alone, with DataParallel, and with libtorch's functions, measured in turn.
// Then it has the side effects of one forward with each. The program exits with 1 if results differ.
#include "yoke/train/parallel/data_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/parallel/data_parallel.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using torch::nn::Sequential;

const std::vector<c10::Device> kDevices(2, c10::Device(c10::kCPU));

Sequential mlp(int64_t width, int64_t num_layers) {
  Sequential model;
  for (int64_t i = 0; i < num_layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::ReLU());
  }
  return model;
}

Sequential cnn() {
  const auto block = [](Sequential& model, int64_t in, int64_t out) {
    model->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
    model->push_back(torch::nn::BatchNorm2d(out));
    model->push_back(torch::nn::ReLU());
  };
  Sequential model;
  block(model, 3, 16);
  block(model, 16, 16);
  return model;
}

at::Tensor libtorchs(const Sequential& model, const at::Tensor& x) {
  auto replicas = torch::nn::parallel::replicate(model, kDevices);
  return at::cat(torch::nn::parallel::parallel_apply(replicas, x.chunk(2), std::make_optional(kDevices)));
}

template <class F>
double milliseconds(Sequential& model, const F& forward) {
  model->zero_grad();
  const auto start = std::chrono::steady_clock::now();
  forward().square().mean().backward();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Measures with one thread of libtorch's pool, so that two replicas use two cores. libtorch's parallel_apply uses this
/// pool, so it is then measured with two threads too, next to one module with two threads.
nlohmann::json measure(Sequential model, const at::Tensor& x, int rounds) {
  std::vector<double> whole, ours, theirs, whole_with_two, theirs_with_two;
  const auto take = [&](int i, std::vector<double>& into, const auto& forward) {
    const auto taken = milliseconds(model, forward);
    if (i >= 0) into.push_back(taken);
  };
  {
    yoke::train::DataParallel parallel(model.ptr(), kDevices);
    for (int i = -2; i < rounds; ++i) {
      take(i, whole, [&] { return model->forward(x); });
      take(i, ours, [&] { return parallel.forward(x); });
      take(i, theirs, [&] { return libtorchs(model, x); });
    }
  }
  at::set_num_threads(2);
  for (int i = -2; i < rounds; ++i) {
    take(i, whole_with_two, [&] { return model->forward(x); });
    take(i, theirs_with_two, [&] { return libtorchs(model, x); });
  }
  at::set_num_threads(1);
  return {{"one_module", median(whole)},
          {"yoke", median(ours)},
          {"libtorch", median(theirs)},
          {"one_module_with_two_threads", median(whole_with_two)},
          {"libtorch_with_two_threads", median(theirs_with_two)}};
}

/// Returns the side effects of a forward in training mode.
template <class F>
nlohmann::json traces(const F& forward_of) {
  auto model = cnn();
  auto frozen = model->parameters()[0];
  frozen.requires_grad_(false);
  const auto forward = forward_of(model);
  const auto x = at::randn({4, 3, 8, 8}), statistics = model->named_buffers()["1.running_mean"].clone();
  at::manual_seed(1);
  const auto expected = at::randn({4});
  at::manual_seed(1);
  forward(x);
  return {{"takes_random_numbers", !at::equal(at::randn({4}), expected)},
          {"updates_batch_norm_statistics", !at::equal(model->named_buffers()["1.running_mean"], statistics)}};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 && std::string(argv[1]) == "--rounds" ? std::stoi(argv[2]) : 20;
  at::set_num_threads(1);
  nlohmann::json report;
  report["devices"] = {"cpu", "cpu"};
  report["mlp_256_batch_64"] = measure(mlp(256, 4), at::randn({64, 256}), rounds);
  report["mlp_1024_batch_64"] = measure(mlp(1024, 3), at::randn({64, 1024}), rounds);
  report["cnn_batch_32"] = measure(cnn(), at::randn({32, 3, 32, 32}), rounds);

  report["yoke_leaves"] = traces([](Sequential& model) {
    const auto parallel = std::make_shared<yoke::train::DataParallel<torch::nn::SequentialImpl>>(model.ptr(), kDevices);
    return [parallel](const at::Tensor& x) { return parallel->forward(x); };
  });
  report["libtorch_leaves"] =
      traces([](Sequential& model) { return [model](const at::Tensor& x) { return libtorchs(model, x); }; });
  {
    auto model = mlp(8, 1);
    auto weight = model->parameters()[0];
    weight.requires_grad_(false);
    const auto replicas = torch::nn::parallel::replicate(model, kDevices);
    report["libtorch_leaves"]["frozen_parameter_needs_gradient_in_replicas"] =
        replicas[1]->parameters()[0].requires_grad();
  }
  std::cout << report.dump(2) << "\n";

  auto model = mlp(16, 2);
  const auto x = at::randn({6, 16});
  yoke::train::DataParallel parallel(model.ptr(), kDevices);
  const bool is_right = at::allclose(parallel.forward(x), model->forward(x), 1e-5, 1e-6) &&
                        at::allclose(libtorchs(model, x), model->forward(x), 1e-5, 1e-6);
  return is_right ? 0 : 1;
}
