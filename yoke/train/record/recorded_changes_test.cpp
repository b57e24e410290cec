// What programs change between the calls of a Recorded step, and what they do in it that a replay would not.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/rnn.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/record/recorded.h"
#include "yoke/train/record/small_step_test.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The reason why a step of SGD with `call` in it was not recorded.
std::string why_not_with(const std::function<void(Sgd& optimizer, const at::Tensor& loss)>& call) {
  Small small;
  Sgd optimizer({{"weight", small.weight}}, {.lr = 0.1, .momentum = 0.5});
  return small.why_not([&](const at::Tensor& x) {
    optimizer.zero_grad();
    const auto loss = (x * small.weight).sum();
    loss.backward();
    call(optimizer, loss);
    optimizer.step();
    return loss;
  });
}

TEST(RecordedChanges, NamesCallsThatChangeNumbersOfTheProgram) {
  EXPECT_THAT(why_not_with([](Sgd& optimizer, const at::Tensor&) { optimizer.set_lr(0.2); }),
              AllOf(HasSubstr("SGD.set_lr(lr)"), HasSubstr("call it before the recorded step")));
  EXPECT_THAT(why_not_with([](Sgd& optimizer, const at::Tensor&) { optimizer.set_lr(0, 0.2); }),
              HasSubstr("SGD.set_lr(group, lr)"));
  EXPECT_THAT(why_not_with([](Sgd& optimizer, const at::Tensor&) { optimizer.set_momentum(0.7); }),
              HasSubstr("SGD.set_momentum(momentum)"));
  EXPECT_THAT(why_not_with([](Sgd& optimizer, const at::Tensor&) { optimizer.step(0.2); }), HasSubstr("SGD.step(lr)"));
  EXPECT_THAT(why_not_with([](Sgd& optimizer, const at::Tensor& loss) {
                GradScaler scaler({.init_scale = 1});
                scaler.scale(loss);
                scaler.step(optimizer, 0.2);
              }),
              HasSubstr("SGD.set_lr(lr)"));
  Mean mean;
  EXPECT_THAT(why_not_with([&](Sgd&, const at::Tensor& loss) { mean.add(loss.detach(), 4); }),
              AllOf(HasSubstr("Meter.add()"), HasSubstr("add it outside")));
  EXPECT_EQ(mean.weight(), 6 * 4);
  const auto averaged = at::randn({3});
  ExponentialMovingAverage average(NamedTensors{{"weight", averaged}}, {});
  EXPECT_THAT(why_not_with([&](Sgd&, const at::Tensor&) { average.update(); }),
              HasSubstr("ExponentialMovingAverage.update()"));
  EXPECT_EQ(average.num_updates(), 6);
}

// The recorded step did not make the call, and one that is compared does.
TEST(RecordedChanges, ComparisonsFindALaterCall) {
  Small small;
  Sgd optimizer({{"weight", small.weight}}, {.lr = 0.1});
  int64_t calls = 0;
  Recorded recorded(
      [&](const at::Tensor& x) {
        optimizer.zero_grad();
        (x * small.weight).sum().backward();
        if (++calls == 4) optimizer.set_lr(0.2);
        optimizer.step();
      },
      small.options);
  for (int i = 0; i < 6; ++i) recorded(at::randn({4, 3}));
  EXPECT_EQ(calls, 6);
  EXPECT_THAT(recorded.why_not(), HasSubstr("SGD.set_lr(lr)"));
}

TEST(RecordedChanges, RunsStepsWithLazyInputs) {
  Small small({.check = false});
  const auto step = [&](const at::Tensor& x) { return x * small.weight.detach(); };
  Recorded recorded(step, small.options);
  for (int i = 0; i < 12; ++i) {
    const auto numbers = at::randn({4, 3}, at::kComplexFloat);
    auto x = at::imag(numbers);
    if (i == 6) x = at::imag(numbers.conj());
    if (i == 7) x = at::_efficientzerotensor({4, 3}, at::TensorOptions(at::kFloat));
    EXPECT_EQ(x.is_neg(), i == 6);
    const auto result = recorded(x);
    EXPECT_TRUE(at::equal(result, step(x))) << i;
  }
  EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("conjugated, negated or a zero tensor")));
  EXPECT_EQ(recorded.num_recordings(), 1);
  EXPECT_THAT(recorded.why_not(), IsEmpty());
}

TEST(RecordedChanges, SeesThatRequiresGradChanges) {
  Small small({.check = false});
  const auto other = at::randn({3}).requires_grad_(false);
  Sgd optimizer({{"weight", small.weight}}, {.lr = 0.1});
  Recorded recorded(
      [&](const at::Tensor& x) {
        optimizer.zero_grad();
        other.mutable_grad().reset();
        (x * small.weight * other).sum().backward();
        optimizer.step();
      },
      small.options);
  const auto x = at::randn({4, 3});
  for (int i = 0; i < 20; ++i) {
    if (i == 12) other.requires_grad_(true);
    recorded(x);
    EXPECT_EQ(other.grad().defined(), i >= 12) << i;
  }
  EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("requires_grad of a tensor that the step uses has changed")));
  EXPECT_EQ(recorded.num_recordings(), 2);
}

TEST(RecordedChanges, IsRecordedAgainWithAnotherOptimizer) {
  Small small;
  const auto make = [&](double lr) {
    return std::make_unique<Sgd>(NamedTensors{{"weight", small.weight}}, SgdOptions{.lr = lr});
  };
  auto optimizer = make(0.5);
  Recorded recorded(
      [&](const at::Tensor& x) {
        optimizer->zero_grad();
        (x * small.weight).sum().backward();
        optimizer->step();
      },
      small.options);
  const auto x = at::randn({4, 3});
  for (int i = 0; i < 24; ++i) {
    if (i == 14) optimizer.reset();  // so that the next one may have its address
    if (i == 14) optimizer = make(0.25);
    const auto expected = small.weight.detach() - (i < 14 ? 0.5 : 0.25) * x.sum(0);
    recorded(x);
    EXPECT_TRUE(at::allclose(small.weight.detach(), expected)) << i;
  }
  EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("its optimizer was replaced by another one")));
  EXPECT_EQ(recorded.num_recordings(), 2);
}

/// Trains with two backwards in a step, the second of which fails in some calls. Returns the gradients and the weights
/// after each call.
std::vector<at::Tensor> train_with_errors(bool is_recorded, bool zeroes_first) {
  Small small;
  small.weight = at::full({3}, 0.5).requires_grad_();
  Sgd optimizer({{"weight", small.weight}}, {.lr = 0.1, .momentum = 0.5});
  const auto do_step = [&](const at::Tensor& x, const at::Tensor& index) {
    if (zeroes_first) optimizer.zero_grad();
    (x * small.weight).square().sum().backward();
    (x * small.weight).index_select(0, index).sum().backward();
    optimizer.step();
    if (!zeroes_first) optimizer.zero_grad();
  };
  Recorded recorded(do_step, small.options);
  std::vector<at::Tensor> values;
  int64_t num_errors = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const auto x = (at::arange(12).to(at::kFloat) * static_cast<double>(i)).cos().view({4, 3}) * 0.1;
    const auto index = at::full({2}, i > 12 && i % 5 < 2 ? 9 : 1, at::kLong);
    try {
      is_recorded ? recorded(x, index) : do_step(x, index);
    } catch (const c10::Error&) {
      ++num_errors;
    }
    values.push_back(small.weight.detach().clone());
    values.push_back(small.weight.grad().defined() ? small.weight.grad().clone() : at::zeros({1}));
  }
  EXPECT_EQ(num_errors, 10);
  EXPECT_EQ(recorded.num_replays() > 20, is_recorded);
  EXPECT_THAT(small.warnings, IsEmpty());
  return values;
}

// Errors meet replays, comparisons and recordings.
TEST(RecordedChanges, AnErrorLeavesTheGradientsOfTheStep) {
  for (const bool zeroes_first : {false, true}) {
    const auto expected = train_with_errors(false, zeroes_first), values = train_with_errors(true, zeroes_first);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(same_bits(values[i], expected[i])) << i;
  }
}

TEST(RecordedChanges, SeesThatATensorHasAnotherShape) {
  Small small({.check = false});
  const auto given = at::randn({6, 3});
  Recorded recorded([&] { return (given * small.weight.detach()).sum(0); }, small.options);
  const auto expect_right = [&] {
    for (int i = 0; i < 12; ++i) EXPECT_TRUE(same_bits(recorded(), (given * small.weight.detach()).sum(0))) << i;
  };
  expect_right();
  given.resize_({3, 3});
  expect_right();
  EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("the shape of a tensor that the step uses has changed")));
}

TEST(RecordedChanges, SeesHooksOfParameters) {
  Small small({.check = false});
  Recorded recorded(
      [&](const at::Tensor& x) {
        small.weight.mutable_grad().reset();
        (x * small.weight).sum().backward();
      },
      small.options);
  const auto x = at::randn({4, 3});
  const auto expect_times = [&](double factor) {
    for (int i = 0; i < 12; ++i) {
      recorded(x);
      EXPECT_TRUE(at::allclose(small.weight.grad(), x.sum(0) * factor)) << i;
    }
  };
  expect_times(1);
  auto hook = small.weight.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  expect_times(2);
  small.weight.remove_hook(hook);
  hook = small.weight.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  expect_times(3);
  small.weight.remove_hook(hook);
  expect_times(1);
  EXPECT_THAT(small.warnings, SizeIs(3));
  EXPECT_THAT(small.warnings, Each(HasSubstr("hooks of a parameter, Float [3], were added or removed")));
}

TEST(RecordedChanges, AreFoundWithinSoManyReplays) {
  Small small({.check_every = 3});
  double factor = 1;
  Recorded recorded([&](const at::Tensor& x) { return x * factor; }, small.options);
  const auto x = at::randn({4, 3});
  for (int i = 0; i < 3 + 8; ++i) recorded(x);
  factor = 2;
  recorded(x);
  recorded(x);
  EXPECT_THAT(test::message_of([&] { recorded(x); }, ErrorCode::kFailedPrecondition),
              AllOf(HasSubstr("replay 11 was compared"), HasSubstr("The replays since number 8 may have been wrong")));
}

TEST(RecordedChanges, NamesLeavesThatTheStepMakes) {
  EXPECT_THAT(Small().why_not([](const at::Tensor& x) {
    const auto leaf = x.clone().requires_grad_();
    leaf.square().sum().backward();
    return leaf.grad() * 2;
  }),
              HasSubstr("it makes a tensor that requires a gradient of its own, Float [4, 3]"));
  at::Tensor sum = at::zeros({3});
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    sum = sum + x.sum(0);
    return sum * 2;
  }),
              HasSubstr("sum = sum + loss"));
}

TEST(RecordedChanges, KeepsGradientsOfTheProgram) {
  for (const bool is_view : {false, true}) {
    Small small;
    Recorded recorded(
        [&](const at::Tensor& x) {
          small.weight.mutable_grad().reset();
          (x * small.weight).sum().backward();
        },
        small.options);
    std::vector<at::Tensor> kept, copies;
    for (int i = 0; i < 40; ++i) {
      recorded(at::randn({4, 3}));
      if (i < 10) continue;
      kept.push_back(is_view ? small.weight.grad().view({3, 1}) : small.weight.grad());
      copies.push_back(kept.back().clone());
    }
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same_bits(kept[i], copies[i])) << i;
    EXPECT_THAT(recorded.why_not(), HasSubstr("keep a clone() of it"));
  }
}

TEST(RecordedChanges, TakesAGradientAsInputAndGivesItAsResult) {
  Small small;
  const auto step = [&](const at::Tensor& x) {
    small.weight.mutable_grad().reset();
    (x * small.weight).sum().backward();
    return small.weight.grad();
  };
  Recorded recorded(step, small.options);
  std::vector<at::Tensor> results, copies;
  for (int i = 0; i < 20; ++i) {
    const auto x = i < 10 ? at::randn({3}) : small.weight.grad();
    const auto expected = x.clone();
    results.push_back(recorded(x));
    copies.push_back(expected);
  }
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same_bits(results[i], copies[i])) << i;
}

TEST(RecordedChanges, ReplaysAfterZeroGradOfTheModule) {
  Small small;
  torch::nn::Linear net(3, 2);
  Sgd optimizer(net->named_parameters().pairs(), {.lr = 0.1});
  Recorded recorded(
      [&](const at::Tensor& x) {
        net->zero_grad();
        const auto loss = net(x).sum();
        loss.backward();
        optimizer.step();
        return loss;
      },
      small.options);
  for (int i = 0; i < 20; ++i) recorded(at::randn({4, 3}));
  EXPECT_EQ(recorded.num_recordings(), 1);
  EXPECT_EQ(recorded.num_replays(), 17);
  EXPECT_THAT(small.warnings, IsEmpty());
}

TEST(RecordedChanges, StopsToRecordAgain) {
  Small small;
  Recorded recorded([&](const at::Tensor& x) { return x * small.weight.detach(); }, small.options);
  for (int i = 0; i < 50; ++i) {
    small.weight.set_data(at::randn({3}));
    const auto x = at::randn({4, 3});
    EXPECT_TRUE(same_bits(recorded(x), x * small.weight.detach()));
  }
  EXPECT_THAT(recorded.why_not(), AllOf(HasSubstr("recorded 4 times in a row"),
                                        HasSubstr("a tensor that the step uses, Float [3], was replaced")));
  EXPECT_EQ(recorded.num_recordings(), 4);
  EXPECT_THAT(small.warnings, SizeIs(4));
}

TEST(RecordedChanges, DropsThePlanAfterAnErrorOfTheComparison) {
  Small small;
  double factor = 1;
  const auto step = [&](const at::Tensor& x) { return x * factor; };
  Recorded recorded(step, small.options);
  for (int i = 0; i < 6; ++i) recorded(at::randn({4, 3}));
  factor = 2;
  EXPECT_THAT(test::message_of(
                  [&] {
                    recorded(at::randn({4, 3}));
                  },
                  ErrorCode::kFailedPrecondition),
              HasSubstr("replay 4 was compared"));
  const auto x = at::randn({4, 3});
  EXPECT_TRUE(same_bits(recorded(x), step(x)));
  EXPECT_THAT(recorded.why_not(), HasSubstr("other bits than the step itself"));
}

TEST(RecordedChanges, NamesAResultThatTheProgramKeeps) {
  std::vector<at::Tensor> kept;
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    const auto loss = x.sum();
    kept.push_back(loss.detach());
    return loss;
  }),
              HasSubstr("the program keeps a tensor of 4 bytes"));
  EXPECT_THAT(kept, SizeIs(6));
}

TEST(RecordedChanges, NamesPackedSequences) {
  const auto lengths = at::full({4}, 2, at::kLong);
  EXPECT_THAT(Small().why_not([&](const at::Tensor& x) {
    return torch::nn::utils::rnn::pack_padded_sequence(x, lengths, /*batch_first=*/true).data() * 2;
  }),
              HasSubstr("aten::_pack_padded_sequence gives a tensor whose shape depends on values"));
}

TEST(RecordedChanges, LeavesRandomGeneratorsToStepsThatDraw) {
  for (const bool draws : {false, true}) {
    Small small;
    // As another thread does, the first comparison finds the generator elsewhere each time.
    Recorded recorded(
        [&](const at::Tensor& x) {
          const auto generator = at::detail::getDefaultCPUGenerator();
          at::Generator(generator).set_current_seed(generator.current_seed() + 1);
          return draws ? at::dropout(x, 0.5, true) : x * 2;
        },
        small.options);
    for (int i = 0; i < 6; ++i) recorded(at::randn({4, 3}));
    EXPECT_EQ(recorded.why_not().empty(), !draws);
  }
}

}  // namespace
}  // namespace yoke::train
