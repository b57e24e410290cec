// yoke/models/gold_test.h -- what Python's networks compute (tests/models/gold.json), and the filling of networks for
// it.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/train/checkpoint/module_state.h"

namespace yoke::models {

inline const nlohmann::json& gold() {
  static const auto json = nlohmann::json::parse(read_file(YOKE_MODELS_GOLD));
  return json;
}

/// As `noise` of tests/models/make_gold.py: double [count].
inline at::Tensor noise(int64_t count, int64_t number) {
  constexpr int64_t kPeriod = 10007;
  auto x =
      (torch::arange(std::min(count, kPeriod), torch::kLong) * 2654435761 + number * 40503 + 1).bitwise_and(0xFFFFFFFF);
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  x = (x * 2246822519).bitwise_and(0xFFFFFFFF);
  x = x.bitwise_xor(x.bitwise_right_shift(13));
  const auto values = x.bitwise_and(0xFFFF).to(torch::kDouble) / 65536 - 0.5;
  return values.repeat({(count + kPeriod - 1) / kPeriod}).narrow(0, 0, count);
}

/// As `fill` of tests/models/make_gold.py, for tensors in the order of Python's state_dict.
inline void fill(const train::NamedTensors& tensors) {
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (const auto& [name, tensor] : tensors) {
    auto values = noise(tensor.numel(), number++);
    if (!tensor.is_floating_point()) continue;
    const auto ends_with = [&, &text = name](const char* end) { return text.ends_with(end); };
    if (tensor.dim() == 2 || tensor.dim() == 4) {
      values *= std::sqrt(24.0 / (static_cast<double>(tensor.numel()) / static_cast<double>(tensor.size(0))));
    } else if (ends_with("running_var")) {
      values += 1;
    } else if (tensor.dim() == 1 && ends_with("weight")) {
      values.mul_(0.2).add_(0.5);
    } else if (tensor.dim() == 1) {
      values *= 0.2;
    }
    tensor.copy_(values.view(tensor.sizes()));
  }
}

inline at::Tensor images(int64_t batch, int64_t side) {
  return (2 * noise(batch * 3 * side * side, 1000)).view({batch, 3, side, side}).to(torch::kFloat);
}

/// Compares with numbers of Python's, within rounding.
inline void expect_gold(const at::Tensor& actual, const nlohmann::json& expected, double tolerance = 1e-4) {
  const auto values = torch::tensor(expected.get<std::vector<double>>());
  const auto flat = actual.detach().to(torch::kDouble).flatten();
  ASSERT_EQ(flat.numel(), values.numel());
  const auto scale = values.abs().max().item<double>();
  EXPECT_LE((flat - values).abs().max().item<double>(), tolerance * scale) << flat << values;
}

template <class Net>
void expect_output(Net& net, int64_t side, const nlohmann::json& expected) {
  const torch::NoGradGuard no_grad;
  fill(train::named_tensors(*net));
  net->eval();
  expect_gold(net->forward(images(2, side)).narrow(1, 0, 8), expected);
}

/// Compares the loss of one step, and the norms of gradients.
template <class Net>
void expect_step(Net& net, int64_t side, const nlohmann::json& expected) {
  fill(train::named_tensors(*net));
  net->train();
  const auto loss = torch::cross_entropy_loss(net->forward(images(4, side)), torch::arange(4));
  loss.backward();
  EXPECT_NEAR(loss.template item<double>(), expected["loss"].template get<double>(), 1e-4);
  const auto parameters = net->named_parameters();
  for (const auto& [name, norm] : expected["gradients"].items()) {
    const double value = norm.template get<double>();
    EXPECT_NEAR(parameters[name].grad().norm().template item<double>(), value, 1e-3 * value) << name;
  }
}

}  // namespace yoke::models
