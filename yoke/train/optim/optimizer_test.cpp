// Properties of all optimizers (parity_test.cpp compares them with PyTorch's).
#include "yoke/train/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/rmsprop.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::HasSubstr;

using Make = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;

template <class Kind, class Options>
Make maker(const Options& options) {
  return [options](NamedTensors parameters) { return std::make_unique<Kind>(std::move(parameters), options); };
}

std::vector<std::pair<const char*, Make>> all_optimizers() {
  return {
      {"Adam", maker<Adam>(AdamOptions{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true})},
      {"AdamW", maker<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1, .maximize = true})},
      {"SGD", maker<Sgd>(SgdOptions{.lr = 0.1, .weight_decay = 0.1})},
      {"SGD with momentum", maker<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .maximize = true})},
      {"SGD, Nesterov", maker<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true})},
      {"Adagrad", maker<Adagrad>(AdagradOptions{
                      .lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator_value = 0.1})},
      {"NAdam", maker<NAdam>(NAdamOptions{.lr = 0.01, .weight_decay = 0.1, .momentum_decay = 0.1})},
      {"RMSprop", maker<RMSprop>(RMSpropOptions{.lr = 0.01, .momentum = 0.9, .centered = true})},
      {"RMSprop, plain", maker<RMSprop>(RMSpropOptions{.lr = 0.01, .weight_decay = 0.1, .maximize = true})},
  };
}

bool is_fused(std::string_view name) { return !name.starts_with("NAdam") && !name.starts_with("RMSprop"); }

at::Tensor values(int64_t size, double step, double offset) {
  auto tensor = at::empty({size});
  for (int64_t i = 0; i < size; ++i) {
    tensor.data_ptr<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) * step + offset));
  }
  return tensor;
}

at::Tensor start(int64_t size) { return values(size, 1, 0).requires_grad_(); }
at::Tensor gradient(int64_t size, int step) { return values(size, 0.7 * step + 0.1, 1); }

// Columns of a matrix have gaps in memory, which the fused kernels would overwrite.
TEST(Optimizers, StepParametersWithGapsInMemory) {
  for (const auto& [name, make] : all_optimizers()) {
    auto columns = at::zeros({8, 6}).narrow(1, 1, 3);
    columns.copy_(values(24, 1, 0).view({8, 3}));
    columns.requires_grad_();
    const auto whole = start(24).detach().view({8, 3}).clone().requires_grad_();
    const auto with_gaps = make({{"w", columns}}), dense = make({{"w", whole}});
    for (int step = 0; step < 5; ++step) {
      columns.mutable_grad() = gradient(24, step).view({8, 3});
      whole.mutable_grad() = gradient(24, step).view({8, 3});
      with_gaps->step();
      dense->step();
    }
    EXPECT_TRUE(at::allclose(columns, whole, 1e-5, 1e-6)) << name;
    for (const auto& [key, tensor] : dense->state_dict()) {
      EXPECT_TRUE(at::allclose(with_gaps->state_dict().at(key), tensor, 1e-5, 1e-6)) << name << " " << key;
    }
  }
}

// In sharded training, an optimizer steps 1-D slices of parameters. Steps of all slices must equal a step of the whole
// parameter.
TEST(Optimizers, StepSlicesAsTheWhole) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto whole = start(203), sliced = start(203);
    const auto reference = make({{"w", whole}});
    std::vector<at::Tensor> slices;
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    const std::vector<int64_t> bounds{0, 16, 128, 203};  // slices begin at multiples of 64 bytes, for the same bits
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      slices.push_back(sliced.detach().narrow(0, bounds[i], bounds[i + 1] - bounds[i]).requires_grad_());
      optimizers.push_back(make({{"w", slices.back()}}));
    }
    for (int step = 0; step < 10; ++step) {
      whole.mutable_grad() = gradient(203, step);
      reference->step();
      for (size_t i = 0; i < slices.size(); ++i) {
        slices[i].mutable_grad() = gradient(203, step).narrow(0, bounds[i], slices[i].numel());
        optimizers[i]->step();
      }
    }
    EXPECT_TRUE(at::equal(whole, sliced)) << name;
  }
}

// Oracle: steps with found_inf = 1 have no effect, not even the first one.
TEST(Optimizers, SkipStepsWithInfiniteGradients) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto scaled = start(40), plain = start(40);
    const auto with_scale = make({{"w", scaled}}), without = make({{"w", plain}});
    const auto scale = at::full({1}, 256.f);
    for (int step = 0; step < 8; ++step) {
      const bool is_bad = step == 0 || step == 1 || step == 5;
      scaled.mutable_grad() = gradient(40, step).mul(256);
      if (is_bad) scaled.mutable_grad().fill_(std::numeric_limits<float>::infinity());
      with_scale->step({.scale = scale, .found_inf = at::full({1}, is_bad ? 1.f : 0.f)});
      if (is_bad) continue;
      if (is_fused(name)) {
        EXPECT_TRUE(at::equal(scaled.grad(), gradient(40, step))) << name << ": gradients are unscaled in place";
      }
      plain.mutable_grad() = gradient(40, step);
      without->step();
    }
    EXPECT_TRUE(at::equal(scaled, plain)) << name;
    for (const auto& [key, tensor] : without->state_dict()) {
      EXPECT_TRUE(at::equal(with_scale->state_dict().at(key), tensor)) << name << " " << key;
    }
  }
}

// Oracle: each parameter steps as if it were alone, even if parameters have gradients at different steps. C++'s
// named_parameters() returns a tied parameter under each of its names, Python's only under the first.
TEST(Optimizers, StepATiedParameterOnce) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto tied = start(5), plain = start(5);
    const auto of_tied = make({{"embedding", tied}, {"head", tied}}), of_plain = make({{"embedding", plain}});
    for (int step = 0; step < 3; ++step) {
      tied.mutable_grad() = gradient(5, step);
      plain.mutable_grad() = gradient(5, step);
      of_tied->step();
      of_plain->step();
    }
    EXPECT_TRUE(at::equal(tied, plain)) << name;
    EXPECT_EQ(of_tied->parameters().size(), 1u) << name;
    EXPECT_EQ(of_tied->state_dict().size(), of_plain->state_dict().size()) << name;
  }
  const auto weight = start(2);
  const ParameterGroup<SgdOptions> first{{{"a", weight}}, {}}, second{{{"b", weight}}, {}};
  EXPECT_THAT(message_of([&] { Sgd({first, second}); }), HasSubstr("'a' and 'b' are one parameter, in two groups"));
}

TEST(Optimizers, FollowGradientsThatComeAndGo) {
  for (const auto& [name, make] : all_optimizers()) {
    NamedTensors parameters{{"a", start(5)}, {"b", start(20)}, {"c", start(33)}, {"d", start(1)}};
    const auto together = make(parameters);
    NamedTensors twins;
    std::vector<std::unique_ptr<Optimizer>> alone;
    for (const auto& [key, parameter] : parameters) {
      twins.emplace_back(key, start(parameter.numel()));
      alone.push_back(make({twins.back()}));
    }
    for (int step = 0; step < 12; ++step) {
      together->zero_grad();
      for (size_t i = 0; i < parameters.size(); ++i) {
        if ((step * 7 + static_cast<int>(i) * 3) % 4 < 2 && i != 3) continue;
        parameters[i].second.mutable_grad() = gradient(parameters[i].second.numel(), step);
        twins[i].second.mutable_grad() = gradient(parameters[i].second.numel(), step);
        alone[i]->step();
      }
      together->step();
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i].second, twins[i].second)) << name << " " << parameters[i].first;
    }
  }
}

TEST(Optimizers, ResumeFromTheirState) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto run = [](Optimizer& optimizer, int first, int last) {
      for (int step = first; step < last; ++step) {
        for (const auto& [key, parameter] : optimizer.parameters()) {
          parameter.mutable_grad() = gradient(parameter.numel(), step);
        }
        optimizer.step();
      }
    };
    const auto whole = make({{"a", start(20)}, {"b", start(7)}});
    run(*whole, 0, 10);
    const auto first = make({{"a", start(20)}, {"b", start(7)}});
    run(*first, 0, 5);
    NamedTensors copies;
    for (const auto& [key, parameter] : first->parameters()) {
      copies.emplace_back(key, parameter.detach().clone().requires_grad_());
    }
    const auto second = make(copies);
    second->load_state_dict(first->state_dict());
    run(*first, 5, 10);  // uses its own state, which is not shared with the second
    run(*second, 5, 10);
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_TRUE(at::equal(second->parameters()[i].second, whole->parameters()[i].second)) << name;
      EXPECT_TRUE(at::equal(first->parameters()[i].second, whole->parameters()[i].second)) << name;
    }
  }
}

// Python's load_state_dict replaces the rates of param_groups too, whatever the optimizer was made with.
TEST(Optimizers, KeepRatesThatWereSetByHand) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto first = make({{"a", start(3)}}), second = make({{"a", start(3)}});
    first->set_lr(0.1 * first->lr());
    second->load_state_dict(first->state_dict());
    EXPECT_EQ(second->lr(), first->lr()) << name;
  }
  const auto make = [](size_t num_groups) {
    std::vector<ParameterGroup<AdamWOptions>> groups;
    for (size_t i = 0; i < num_groups; ++i) groups.push_back({{{std::to_string(i), start(2)}}, {.lr = 0.5}});
    return AdamW(groups);
  };
  auto two = make(2), resumed = make(2), three = make(3);
  two.set_lr(1, 0.25);
  resumed.load_state_dict(two.state_dict());
  EXPECT_EQ(resumed.lr(0), 0.5);
  EXPECT_EQ(resumed.lr(1), 0.25);
  three.load_state_dict({});  // of an older version
  EXPECT_EQ(three.lr(2), 0.5);
  const auto load = [&](const at::Tensor& lr) { return message_of([&] { two.load_state_dict({{"lr", lr}}); }); };
  EXPECT_THAT(load(at::full({2}, std::numeric_limits<double>::infinity(), at::kDouble)), HasSubstr("must be a finite"));
  EXPECT_THAT(load(at::ones({2})), HasSubstr("'lr' is Float [2], not one double for each group"));
  EXPECT_EQ(two.lr(1), 0.25);
}

// A training whose parameters are in other groups than before goes on. Its parameters have the same names.
TEST(Optimizers, LoadAStateOfOtherGroups) {
  const auto make = [](const std::vector<double>& rates) {
    std::vector<ParameterGroup<SgdOptions>> groups;
    for (const double lr : rates) {
      groups.push_back({{{std::to_string(groups.size()), start(2)}}, {.lr = lr, .momentum = lr}});
    }
    return Sgd(groups);
  };
  auto one = make({0.5}), equal = make({0.25, 0.25}), different = make({0.125, 0.25});
  testing::internal::CaptureStderr();
  one.load_state_dict(equal.state_dict());
  EXPECT_EQ(one.lr(), 0.25);
  EXPECT_EQ(one.options().momentum, 0.25);
  different.load_state_dict(one.state_dict());
  EXPECT_EQ(different.lr(0), 0.25);
  EXPECT_EQ(different.lr(1), 0.25);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  one.load_state_dict(make({0.125, 0.75}).state_dict());
  EXPECT_EQ(one.lr(), 0.25);
  EXPECT_EQ(one.options().momentum, 0.25);
  const auto warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings,
              HasSubstr("SGD: 'lr' in the state differs between its 2 groups of parameters, and this optimizer "
                        "has 1: each group keeps the 'lr' that it has here"));
  EXPECT_THAT(warnings, HasSubstr("'momentum' in the state differs"));
}

TEST(Optimizers, HaveGroupsWithRatesOfTheirOwn) {
  const auto a = start(4), b = start(4);
  Sgd optimizer({{{{"a", a}}, {.lr = 0.5}}, {{{"b", b}}, {.lr = 0.25, .weight_decay = 0.1}}});
  ASSERT_EQ(optimizer.num_groups(), 2u);
  EXPECT_EQ(optimizer.lr(0), 0.5);
  EXPECT_EQ(optimizer.lr(1), 0.25);
  EXPECT_EQ(optimizer.options(1).weight_decay, 0.1);
  EXPECT_EQ(optimizer.parameters().size(), 2u);
  a.mutable_grad() = b.mutable_grad() = at::ones({4});
  optimizer.step();
  EXPECT_TRUE(at::allclose(a, start(4).sub(0.5)));
  EXPECT_TRUE(at::allclose(b, start(4).mul(1 - 0.025).sub(0.25)));
  optimizer.set_lr(1, 0);
  const auto before = b.detach().clone();
  optimizer.step();
  EXPECT_TRUE(at::equal(b, before));
  optimizer.step(0.125);
  EXPECT_EQ(optimizer.lr(0), 0.125);
  EXPECT_EQ(optimizer.options(1).lr, 0.125);
  EXPECT_THAT(message_of([&] { optimizer.set_lr(2, 0.1); }), HasSubstr("group 2 of 2"));
  EXPECT_THAT(message_of([&] { optimizer.set_lr(std::numeric_limits<double>::infinity()); }), HasSubstr("rate inf"));
  EXPECT_THAT(message_of([&] { Sgd({{{{"a", a}}, {}}, {{{"a", b}}, {}}}); }), HasSubstr("two parameters named 'a'"));
}

// As PyTorch: its constructors refuse a negative rate, and a step with one in `param_groups` ascends. Oracle: maximize.
TEST(Optimizers, ANegativeRateAscends) {
  const auto refusal = message_of([&] { Sgd({{"a", start(4)}}, {.lr = -0.5}); });
  EXPECT_THAT(refusal, HasSubstr("SGD: learning rate -0.5 must not be negative; to maximize the loss, set"));
  const auto ascended = start(4), expected = start(4);
  AdamW optimizer({{"a", ascended}}, {.lr = 0.5, .weight_decay = 0});
  AdamW maximizer({{"a", expected}}, {.lr = 0.5, .weight_decay = 0, .maximize = true});
  for (int i = 0; i < 3; ++i) {
    ascended.mutable_grad() = expected.mutable_grad() = gradient(4, i);
    optimizer.step(-0.5);
    maximizer.step();
  }
  EXPECT_EQ(optimizer.lr(), -0.5);
  EXPECT_TRUE(at::allclose(ascended, expected, 1e-6, 1e-6));
  EXPECT_FALSE(at::allclose(ascended, start(4)));
}

// Oracle: the same gradient as a dense tensor, with zeros in most rows. Rows without a gradient must not change, with
// Adagrad too.
TEST(Optimizers, TakeSparseGradients) {
  const std::vector<std::pair<const char*, Make>> optimizers{
      {"SGD", maker<Sgd>(SgdOptions{.lr = 0.1, .maximize = true})},
      {"Adagrad", maker<Adagrad>(AdagradOptions{.lr = 0.1, .lr_decay = 0.1})}};
  for (const auto& [name, make] : optimizers) {
    const auto sparse = start(30).detach().view({10, 3}).clone().requires_grad_();
    const auto dense = sparse.detach().clone().requires_grad_();
    const auto with_sparse = make({{"w", sparse}}), with_dense = make({{"w", dense}});
    for (int step = 0; step < 5; ++step) {
      // Row 1 occurs twice, so its values are added.
      const auto rows = at::tensor(std::vector<int64_t>{1, 7, step, 1}).view({1, 4});
      const auto rows_gradient = at::sparse_coo_tensor(rows, gradient(12, step).view({4, 3}), {10, 3});
      sparse.mutable_grad() = rows_gradient;
      dense.mutable_grad() = rows_gradient.to_dense();
      with_sparse->step();
      with_dense->step();
    }
    EXPECT_TRUE(at::allclose(sparse, dense, 1e-5, 1e-6)) << name;
  }
}

TEST(Optimizers, RefuseGradientsThatDoNotFit) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto good = start(3), bad = start(3);
    const auto optimizer = make({{"good", good}, {"bad", bad}});
    good.mutable_grad() = at::ones({3});
    const auto step_with = [&](const at::Tensor& other) {
      bad.unsafeGetTensorImpl()->mutable_grad() = other;  // an autograd hook can do this
      return message_of([&] { optimizer->step(); });
    };
    EXPECT_THAT(step_with(at::ones({4})), HasSubstr("the gradient of 'bad' is Float [4] on cpu"));
    EXPECT_THAT(step_with(at::ones({3}, at::kDouble)), HasSubstr("'bad' is Double [3]"));
    EXPECT_THAT(step_with(at::sparse_coo_tensor(at::tensor({int64_t{1}}).view({1, 1}), at::ones({1}), {3})),
                HasSubstr("'bad' is sparse"));
    EXPECT_TRUE(at::equal(good, start(3))) << name << ": stepped in part";
    for (const auto& [key, tensor] : optimizer->state_dict()) EXPECT_EQ(key.find('.'), key.npos) << name << " " << key;

    good.mutable_grad() = bad.mutable_grad() = at::ones({3});  // the optimizer continues as if nothing had happened
    optimizer->step();
    const auto twin = start(3);
    const auto alone = make({{"good", twin}});
    twin.mutable_grad() = at::ones({3});
    alone->step();
    EXPECT_TRUE(at::equal(good, twin)) << name;
  }
}

// Oracle: the same steps in float.
TEST(Optimizers, StepHalvesWithoutAFusedKernel) {
  for (const auto& [name, make] : all_optimizers()) {
    if (is_fused(name)) continue;
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const auto whole = start(70), half = start(70).detach().to(dtype).requires_grad_();
      const auto expected = make({{"w", whole}}), optimizer = make({{"w", half}});
      for (int step = 0; step < 5; ++step) {
        whole.mutable_grad() = gradient(70, step);
        half.mutable_grad() = gradient(70, step).to(dtype);
        expected->step();
        optimizer->step();
      }
      EXPECT_TRUE(at::allclose(half.to(at::kFloat), whole, 2e-2, 2e-2)) << name << " " << dtype;
      EXPECT_FALSE(at::allclose(whole, start(70), 2e-2, 2e-2)) << name << ": nothing has moved";
    }
  }
}

TEST(Optimizers, RefuseParametersThatHaveBecomeOthers) {
  const auto transposed = at::ones({2, 3}).requires_grad_(), converted = at::ones({2, 3}).requires_grad_();
  AdamW optimizer({{"transposed", transposed}, {"converted", converted}});
  const auto step = [&] {
    transposed.mutable_grad() = at::ones_like(transposed);
    converted.mutable_grad() = at::ones_like(converted);
    optimizer.step();
  };
  step();
  const auto with_gradients_reset = [&](const at::Tensor& parameter, const at::Tensor& data) {
    parameter.mutable_grad().reset();
    parameter.set_data(data);
    return message_of(step);
  };
  const auto data = transposed.detach();
  EXPECT_THAT(with_gradients_reset(transposed, data.t().contiguous().t()),
              HasSubstr("'transposed' is Float [2, 3] with strides [1, 2] on cpu, its state Float [2, 3] with strides "
                        "[3, 1]"));
  transposed.mutable_grad().reset();
  transposed.set_data(data);
  EXPECT_THAT(with_gradients_reset(converted, converted.detach().to(at::kDouble)), HasSubstr("'converted' is Double"));
  EXPECT_EQ(optimizer.state_dict().at("step.transposed").item<float>(), 1) << "stepped in part";
}

TEST(Optimizers, RefuseWhatNeverGetsAGradient) {
  const auto leaf = start(3);
  EXPECT_THAT(message_of([&] { Sgd(NamedTensors{{"w", leaf * 2}}); }), HasSubstr("'w' is the result of an operation"));
  const auto retained = leaf * 2;
  retained.retain_grad();
  EXPECT_NO_THROW(Sgd(NamedTensors{{"w", retained}}));
}

TEST(Optimizers, RefuseOptionsByName) {
  const NamedTensors parameters{{"w", start(3)}};
  const auto adam = [&](AdamWOptions o) { return message_of([&] { AdamW(parameters, o); }); };
  EXPECT_THAT(adam({.lr = -1}), HasSubstr("AdamW: learning rate -1"));
  EXPECT_THAT(adam({.beta1 = 1}), HasSubstr("AdamW: beta1 1"));
  EXPECT_THAT(adam({.beta2 = -0.1}), HasSubstr("AdamW: beta2 -0.1"));
  EXPECT_THAT(adam({.eps = -1}), HasSubstr("AdamW: eps -1"));
  EXPECT_THAT(adam({.weight_decay = -1}), HasSubstr("AdamW: weight_decay -1"));
  EXPECT_THAT(message_of([&] { Adam(parameters, {.beta1 = 2}); }), HasSubstr("Adam: beta1 2"));
  const auto adagrad = [&](AdagradOptions o) { return message_of([&] { Adagrad(parameters, o); }); };
  EXPECT_THAT(adagrad({.lr_decay = -1}), HasSubstr("Adagrad: lr_decay -1"));
  EXPECT_THAT(adagrad({.weight_decay = -1}), HasSubstr("Adagrad: weight_decay -1"));
  EXPECT_THAT(adagrad({.eps = -1}), HasSubstr("Adagrad: eps -1"));
  EXPECT_THAT(adagrad({.initial_accumulator_value = -1}), HasSubstr("Adagrad: initial_accumulator_value -1"));
  const auto nadam = [&](NAdamOptions o) { return message_of([&] { NAdam(parameters, o); }); };
  EXPECT_THAT(nadam({.beta1 = 1}), HasSubstr("NAdam: beta1 1"));
  EXPECT_THAT(nadam({.beta2 = -1}), HasSubstr("NAdam: beta2 -1"));
  EXPECT_THAT(nadam({.eps = -1}), HasSubstr("NAdam: eps -1"));
  EXPECT_THAT(nadam({.weight_decay = -1}), HasSubstr("NAdam: weight_decay -1"));
  EXPECT_THAT(nadam({.momentum_decay = -1}), HasSubstr("NAdam: momentum_decay -1"));
  const auto rmsprop = [&](RMSpropOptions o) { return message_of([&] { RMSprop(parameters, o); }); };
  EXPECT_THAT(rmsprop({.alpha = -1}), HasSubstr("RMSprop: alpha -1"));
  EXPECT_THAT(rmsprop({.eps = -1}), HasSubstr("RMSprop: eps -1"));
  EXPECT_THAT(rmsprop({.weight_decay = -1}), HasSubstr("RMSprop: weight_decay -1"));
  EXPECT_THAT(rmsprop({.momentum = -1}), HasSubstr("RMSprop: momentum -1"));
  AdamW optimizer(parameters);
  EXPECT_THAT(message_of([&] { optimizer.step(GradScale{.scale = at::ones({2})}); }), HasSubstr("not Float [2]"));
}

TEST(Optimizers, RefuseANumberThatIsNone) {
  NAdam optimizer({{"a", start(3)}});
  const TensorMap state{{"step.a", at::scalar_tensor(3)},
                        {"exp_avg.a", at::ones({3})},
                        {"exp_avg_sq.a", at::ones({3})},
                        {"mu_product.a", at::ones({3})}};
  EXPECT_THAT(message_of([&] { optimizer.load_state_dict(state); }),
              HasSubstr("NAdam: state 'mu_product.a' is Float [3], not one number"));
}

TEST(Optimizers, RefuseHalfAStateOfAParameter) {
  const auto a = start(3), b = start(3);
  AdamW optimizer({{"a", a}, {"b", b}});
  const auto part = [](const char* name) { return at::ones({3}).mul(name[0]); };
  const auto load = [&](const TensorMap& state) { return message_of([&] { optimizer.load_state_dict(state); }); };
  const TensorMap whole{{"step.a", at::scalar_tensor(3)}, {"exp_avg.a", part("x")}, {"exp_avg_sq.a", part("y")}};
  auto state = whole;
  state.erase("exp_avg_sq.a");
  EXPECT_THAT(load(state), HasSubstr("parameter 'a' lacks 'exp_avg_sq.a'"));
  state = whole;
  state.erase("step.a");
  EXPECT_THAT(load(state), HasSubstr("parameter 'a' lacks 'step.a'"));
  state = whole;
  state["max_exp_avg_sq.a"] = part("z");  // exists only with amsgrad
  EXPECT_THAT(load(state), HasSubstr("'max_exp_avg_sq.a' belongs to no parameter here, or to none with its options"));
  state = whole;
  state["step.a"] = at::ones({2});
  EXPECT_THAT(load(state), HasSubstr("'step.a' is Float [2], not one number"));
  EXPECT_EQ(optimizer.state_dict().size(), 1u) << "a refused state was taken in part";
  state = whole;
  state["step.a"] = at::scalar_tensor(3, at::kLong);
  optimizer.load_state_dict(state);
  EXPECT_EQ(optimizer.state_dict().at("step.a").item<float>(), 3);
  EXPECT_EQ(optimizer.state_dict().size(), 4u);  // and "lr"
}

// A step bypasses autograd's wrappers of the kernels. So the step itself must increase the version counters of tensors,
// and leave requires_grad and is_leaf unchanged.
TEST(Optimizers, AreSeenByAutograd) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto w = start(3), x = start(3);
    const auto optimizer = make({{"w", w}});
    w.mutable_grad() = at::ones({3});
    const auto product = w.mul(x).sum();  // its backward needs the old w
    optimizer->step();
    EXPECT_ANY_THROW(product.backward()) << name << " changed a tensor that backward needs, unnoticed";
    EXPECT_TRUE(w.requires_grad() && w.is_leaf()) << name;
  }
}

TEST(Optimizers, KeepNoGradients) {
  for (const auto& [name, make] : all_optimizers()) {
    const auto w = start(3);
    const auto optimizer = make({{"w", w}});
    const auto gradient = at::ones({3});
    w.mutable_grad() = gradient;
    optimizer->step();
    optimizer->zero_grad();
    EXPECT_EQ(gradient.use_count(), 1u) << name;
  }
}

}  // namespace
}  // namespace yoke::train
