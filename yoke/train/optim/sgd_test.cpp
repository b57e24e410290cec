#include "yoke/train/optim/sgd.h"

#include <ATen/Version.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/hex.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"

namespace yoke::train {
namespace {

using test::message_of;
using test::parse_hex;
using ::testing::HasSubstr;

at::Tensor values(int64_t size, double (*f)(double), double step, double offset) {
  auto tensor = at::empty({size});
  for (int64_t i = 0; i < size; ++i) {
    tensor.data_ptr<float>()[i] = static_cast<float>(f(static_cast<double>(i) * step + offset));
  }
  return tensor;
}

SgdOptions options_of(const nlohmann::json& recorded) {
  return {.momentum = recorded.value("momentum", 0.0),
          .dampening = recorded.value("dampening", 0.0),
          .weight_decay = recorded.value("weight_decay", 0.0),
          .nesterov = recorded.value("nesterov", false),
          .maximize = recorded.value("maximize", false)};
}

// Oracle: Python's torch.optim.SGD(fused=True) (tests/reference/record_fused_sgd.py). The bits are compared if the CPU
// has the vector instructions of the recording machine; otherwise rounding may differ.
TEST(Sgd, EqualsPyTorchsFusedSgd) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("sgd.json")));
  const bool same_bits = at::get_cpu_capability() == recorded["cpu_capability"].get<std::string>();
  const int64_t size = recorded["size"];
  ASSERT_GE(recorded["cases"].size(), 8u);
  for (const auto& entry : recorded["cases"]) {
    const auto parameter = values(size, std::sin, 1, 0).requires_grad_();
    Sgd optimizer({{"weight", parameter}}, options_of(entry["options"]));
    for (int64_t step = 0; step < recorded["steps"]; ++step) {
      parameter.mutable_grad() = values(size, std::cos, static_cast<double>(step), 1);
      optimizer.step(recorded["lr"]);
      const bool last = step + 1 == recorded["steps"];
      if (step != 0 && !last) continue;
      const auto& expected = entry[last ? "parameters" : "after_first"];
      for (int64_t i = 0; i < size; ++i) {
        const double want = parse_hex(expected[static_cast<size_t>(i)]);
        const double got = parameter.const_data_ptr<float>()[i];
        ASSERT_NEAR(got, want, same_bits ? 0 : 1e-5) << entry["options"] << " step " << step << " element " << i;
      }
    }
  }
}

TEST(Sgd, LeavesParametersWithoutAGradientAlone) {
  const auto used = at::ones({3}).requires_grad_(), unused = at::ones({3}).requires_grad_();
  Sgd optimizer({{"used", used}, {"unused", unused}}, {.momentum = 0.9, .weight_decay = 0.1});
  used.mutable_grad() = at::ones({3});
  optimizer.step(0.5);
  EXPECT_TRUE(at::equal(unused, at::ones({3})));
  EXPECT_FALSE(at::equal(used, at::ones({3})));
  EXPECT_FALSE(optimizer.state_dict().contains("momentum_buffer.unused"));

  // A parameter that gets its first gradient later starts its own momentum then, as if it were alone.
  used.mutable_grad() = unused.mutable_grad() = at::ones({3});
  optimizer.step(0.5);
  const auto alone = at::ones({3}).requires_grad_();
  Sgd single({{"alone", alone}}, {.momentum = 0.9, .weight_decay = 0.1});
  alone.mutable_grad() = at::ones({3});
  single.step(0.5);
  EXPECT_TRUE(at::equal(unused, alone));
}

TEST(Sgd, ZeroGradMakesGradientsUndefined) {
  const auto parameter = at::ones({3}).requires_grad_();
  Sgd optimizer({{"p", parameter}}, {});
  parameter.mutable_grad() = at::ones({3});
  optimizer.zero_grad();
  EXPECT_FALSE(parameter.grad().defined());
}

// The elements of a channels_last weight must not be mixed up with those of a gradient in a different memory order.
TEST(Sgd, FollowsShapesAndNotMemory) {
  const auto gradient = at::randn({4, 3, 5, 5});
  const auto plain = at::zeros({4, 3, 5, 5}).requires_grad_();
  const auto last = at::zeros({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  Sgd optimizer({{"plain", plain}, {"last", last}}, {.momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    plain.mutable_grad() = gradient;
    last.mutable_grad() = gradient;
    optimizer.step(0.1);
  }
  EXPECT_TRUE(at::allclose(plain, last));  // the kernel rounds its last few elements differently
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Sgd, UpdatesEveryDtype) {
  const auto single = at::ones({3}).requires_grad_(), twice = at::ones({3}, at::kDouble).requires_grad_();
  Sgd optimizer({{"single", single}, {"twice", twice}}, {});
  single.mutable_grad() = at::ones({3});
  twice.mutable_grad() = at::ones({3}, at::kDouble);
  optimizer.step(0.25);
  EXPECT_TRUE(at::equal(single, at::full({3}, 0.75)));
  EXPECT_TRUE(at::equal(twice, at::full({3}, 0.75, at::kDouble)));
}

// Oracle: an interrupted training equals an uninterrupted one.
TEST(Sgd, ResumesFromItsState) {
  const SgdOptions options{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  const auto run = [&](Sgd& optimizer, const at::Tensor& parameter, int first, int last) {
    for (int step = first; step < last; ++step) {
      parameter.mutable_grad() = values(parameter.numel(), std::cos, step, 1);
      optimizer.step(0.1);
    }
  };
  const auto whole = values(20, std::sin, 1, 0).requires_grad_();
  Sgd uninterrupted({{"w", whole}}, options);
  run(uninterrupted, whole, 0, 10);

  const auto before = values(20, std::sin, 1, 0).requires_grad_();
  Sgd first({{"w", before}}, options);
  run(first, before, 0, 5);
  const auto after = before.detach().clone().requires_grad_();
  Sgd second({{"w", after}}, options);
  second.load_state_dict(first.state_dict());
  run(first, before, 5, 10);  // uses its own buffers, which are not shared with the second
  run(second, after, 5, 10);
  EXPECT_TRUE(at::equal(after, whole));
  EXPECT_TRUE(at::equal(before, whole));
}

TEST(Sgd, KeepsAMomentumThatWasSetByHand) {
  const auto make = [](double momentum) {
    return Sgd({{{{"a", at::ones({1}).requires_grad_()}}, {.momentum = momentum}},
                {{{"b", at::ones({1}).requires_grad_()}}, {.momentum = momentum, .nesterov = momentum > 0}}});
  };
  auto first = make(0.9), second = make(0.9), without = make(0);
  first.set_momentum(1, 0.95);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.options(0).momentum, 0.9);
  EXPECT_EQ(second.options(1).momentum, 0.95);
  const TensorMap negative{{"momentum", at::tensor(std::vector{0.5, -1.0}, at::kDouble)}};
  EXPECT_THAT(message_of([&] { first.load_state_dict(negative); }), HasSubstr("momentum -1"));
  EXPECT_EQ(first.options(0).momentum, 0.9) << "nothing changes on an error";
  first.load_state_dict(without.state_dict());
  EXPECT_EQ(first.options(0).momentum, 0);
  EXPECT_EQ(first.options(1).momentum, 0.95) << "Nesterov's cannot be 0";
}

TEST(Sgd, RefusesForeignStateByName) {
  const auto parameter = at::ones({3}).requires_grad_();
  Sgd optimizer({{"w", parameter}}, {.momentum = 0.9});
  const auto load = [&](std::map<std::string, at::Tensor> state) {
    return message_of([&] { optimizer.load_state_dict(state); });
  };
  EXPECT_THAT(load({{"momentum_buffer.v", at::ones({3})}}), HasSubstr("'momentum_buffer.v' belongs to no parameter"));
  EXPECT_THAT(load({{"momentum_buffer.w", at::ones({4})}}), HasSubstr("'momentum_buffer.w' is Float [4]"));
  EXPECT_THAT(load({{"momentum_buffer.w", at::ones({3}, at::kDouble)}}), HasSubstr("Double [3]"));
  EXPECT_THAT(load({{"momentum_buffer.w", at::Tensor()}}), HasSubstr("undefined"));
  EXPECT_FALSE(optimizer.state_dict().contains("momentum_buffer.w")) << "a refused state was taken in part";
}

TEST(Sgd, RefusesAMomentumThatBeginsOrEndsBetweenSteps) {
  for (const double momentum : {0.0, 0.9}) {
    const auto parameter = at::ones({3}).requires_grad_();
    Sgd optimizer({{"w", parameter}}, {.momentum = 0.9 - momentum});
    optimizer.set_momentum(momentum);
    parameter.mutable_grad() = at::ones({3});
    optimizer.step();
    EXPECT_THAT(message_of([&] { optimizer.set_momentum(0.9 - momentum); }), HasSubstr("after a step"));
    optimizer.set_momentum(momentum / 2);
    optimizer.step();
    EXPECT_EQ(optimizer.state_dict().contains("momentum_buffer.w"), momentum != 0);
  }
}

TEST(Sgd, RefusesBadArguments) {
  const auto parameter = at::ones({3}).requires_grad_();
  const auto make = [&](SgdOptions options) { return message_of([&] { Sgd({{"w", parameter}}, options); }); };
  EXPECT_THAT(make({.momentum = -1}), HasSubstr("momentum -1"));
  EXPECT_THAT(make({.weight_decay = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("weight_decay"));
  EXPECT_THAT(make({.nesterov = true}), HasSubstr("nesterov"));
  EXPECT_THAT(message_of([&] {
                Sgd({{"w", parameter}, {"w", parameter}}, {});
              }),
              HasSubstr("two parameters named 'w'"));
  EXPECT_THAT(message_of([&] { Sgd({{"n", at::ones({2}, at::kLong)}}, {}); }), HasSubstr("'n' is Long [2]"));
  Sgd optimizer({{"w", parameter}}, {});
  EXPECT_THAT(message_of([&] { optimizer.step(std::numeric_limits<double>::infinity()); }),
              HasSubstr("learning rate inf"));
}

// libtorch's fused kernel would change only the last elements (see sgd.cpp).
TEST(Sgd, StepsEveryElementOfHalves) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const auto& options : {SgdOptions{.lr = 0.25}, SgdOptions{.lr = 0.25, .momentum = 0.5, .nesterov = true}}) {
      const auto whole = at::ones({70}).requires_grad_(), half = at::ones({70}, dtype).requires_grad_();
      Sgd expected({{"weight", whole}}, options), optimizer({{"weight", half}}, options);
      for (int step = 0; step < 3; ++step) {
        whole.mutable_grad() = at::ones({70});
        half.mutable_grad() = at::ones({70}, dtype);
        expected.step();
        optimizer.step();
      }
      EXPECT_TRUE(at::allclose(half.to(at::kFloat), whole, 1e-2, 1e-2)) << dtype << "\n" << half;
    }
  }
}

}  // namespace
}  // namespace yoke::train
