// Gradients that a Recorded step finds and leaves in trainings whose parameters, heads and rhythms change.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <c10/core/DefaultDtype.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/precision/grad_scaler.h"
#include "yoke/train/record/recorded.h"
#include "yoke/train/record/small_step_test.h"
#include "yoke/train/seed.h"

namespace yoke::train {
namespace {

namespace nn = torch::nn;
using StepOf = std::function<at::Tensor(const at::Tensor& x)>;

/// Steps that are recorded, or not, and what they gave.
struct Trained {
  bool is_recorded = false;
  std::vector<at::Tensor> values;
  int64_t num_replays = 0;
  void keep(const at::Tensor& tensor) { values.push_back(tensor.defined() ? tensor.detach().clone() : tensor); }
  void keep(const nn::Module& module) {
    for (const auto& parameter : module.parameters()) {
      keep(parameter);
      keep(parameter.grad());
    }
  }
};

/// One step of a training.
class Step {
 public:
  Step(Trained& trained, StepOf step, RecordedOptions options = {})
      : trained_(trained), step_(std::move(step)), recorded_(step_, std::move(options)) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() { trained_.num_replays += recorded_.num_replays(); }
  void operator()(const at::Tensor& x) { trained_.keep(trained_.is_recorded ? recorded_(x) : step_(x)); }

 private:
  Trained& trained_;
  StepOf step_;
  Recorded<StepOf> recorded_;
};

/// Oracle: the same training without a recording has the same bits.
void expect_alike(const std::string& name, const std::function<void(Trained& trained)>& train, int64_t least_replays) {
  SCOPED_TRACE(name);
  Trained eager, recorded{.is_recorded = true};
  for (auto* trained : {&eager, &recorded}) {
    seed({.seed = 1});
    train(*trained);
  }
  ASSERT_EQ(eager.values.size(), recorded.values.size());
  for (size_t i = 0; i < eager.values.size(); ++i) {
    const auto &a = eager.values[i], &b = recorded.values[i];
    ASSERT_EQ(a.defined(), b.defined()) << "value " << i << " of " << eager.values.size();
    ASSERT_TRUE(!a.defined() || same_bits(a, b)) << "value " << i << " of " << eager.values.size();
  }
  EXPECT_GE(recorded.num_replays, least_replays);
}

at::Tensor some_input() { return at::randn({16, 8}); }

/// A trunk and two heads with one optimizer. Every fourth call is of the second head.
struct TwoHeads {
  nn::Linear trunk{8, 16}, classes{16, 4}, value{16, 1};
  nn::Sequential all{trunk, classes, value};
  AdamW optimizer{*all, {}};

  at::Tensor class_loss(const at::Tensor& x) {
    return at::cross_entropy_loss(classes(at::relu(trunk(x))), x.argmax(1).remainder(4));
  }
  at::Tensor value_loss(const at::Tensor& x) { return at::mse_loss(value(at::relu(trunk(x))), x.sum(1, true)); }
};

TEST(RecordedGradients, ZeroGradClearsThoseThatTheStepDoesNotUse) {
  enum class Zero { kOptimizer, kModule, kInPlace };
  for (const auto how : {Zero::kOptimizer, Zero::kModule, Zero::kInPlace}) {
    for (const bool is_second_recorded : {true, false}) {
      const bool checks = is_second_recorded;
      const auto train = [&](Trained& trained) {
        TwoHeads net;
        const auto zero = [&] {
          how == Zero::kOptimizer ? net.optimizer.zero_grad() : net.all->zero_grad(how == Zero::kModule);
        };
        const auto step_of = [&](auto loss_of) {
          return [&, loss_of](const at::Tensor& x) {
            zero();
            const at::Tensor loss = (net.*loss_of)(x);
            loss.backward();
            return loss;
          };
        };
        // Only a step that is told of the modules, or calls yoke's zero_grad(), can know their other parameters.
        RecordedOptions options{.check = checks};
        if (how != Zero::kOptimizer) options.modules = {*net.all};
        Step first(trained, step_of(&TwoHeads::class_loss), options);
        Trained other{.is_recorded = trained.is_recorded && is_second_recorded};
        Step second(other, step_of(&TwoHeads::value_loss), options);
        for (int i = 0; i < 100; ++i) {
          i % 4 == 3 ? second(some_input()) : first(some_input());
          clip_grad_norm(net.optimizer.parameters(), {.max_norm = 1});
          net.optimizer.step(0.01);
          trained.keep(*net.all);
        }
      };
      expect_alike(std::to_string(static_cast<int>(how)) + std::to_string(is_second_recorded), train, 40);
    }
  }
}

TEST(RecordedGradients, ClippingKnowsThoseThatTheStepDoesNotUse) {
  const auto train = [](Trained& trained) {
    TwoHeads net;
    Step first(trained, [&](const at::Tensor& x) {
      const auto loss = net.class_loss(x);
      loss.backward();
      clip_grad_norm(net.optimizer.parameters(), {.max_norm = 0.1});
      return loss;
    });
    for (int i = 0; i < 100; ++i) {
      if (i % 4 == 3) net.value_loss(some_input()).backward();
      first(some_input());
      net.optimizer.step(0.01);
      net.optimizer.zero_grad();
      trained.keep(*net.all);
    }
  };
  expect_alike("a norm", train, 1);
}

TEST(RecordedGradients, ACallWithoutGradientsDropsThem) {
  const auto train = [](Trained& trained) {
    nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 8));
    AdamW optimizer(*net, {});
    Step step(trained, [&](const at::Tensor& x) {
      optimizer.zero_grad();
      const auto loss = net->forward(x).square().mean();
      if (loss.requires_grad()) loss.backward();
      return loss;
    });
    for (int i = 0; i < 100; ++i) {
      const c10::AutoGradMode mode(i % 7 != 5);
      step(some_input());
      optimizer.step(0.01);
      trained.keep(*net);
    }
  };
  expect_alike("now and then under no_grad", train, 80);
}

TEST(RecordedGradients, TheFirstOnesOfAParameterAreNotTakenForLaterOnes) {
  // From the call `first_pair` on, two batches for each step.
  for (const auto& way : {std::pair(true, 50), std::pair(false, 20)}) {
    const auto checks = way.first;
    const auto first_pair = way.second;
    const auto unfreeze = [&](Trained& trained) {
      nn::Linear body(8, 16), head(16, 8);
      AdamW of_body(*body, {}), of_head(*head, {});
      for (auto& parameter : body->parameters()) parameter.requires_grad_(false);
      Step step(trained,
                [&](const at::Tensor& x) {
                  const auto loss = head(at::relu(body(x))).square().mean();
                  loss.backward();
                  return loss;
                },
                {.check = checks});
      for (int i = 0; i < 100; ++i) {
        if (i == 10) {
          for (auto& parameter : body->parameters()) parameter.requires_grad_(true);
          for (auto& parameter : head->parameters()) parameter.requires_grad_(false);
        }
        step(some_input());
        if (i < first_pair || i % 2 == 1) {
          of_body.step(), of_head.step();
          of_body.zero_grad(), of_head.zero_grad();
        }
        trained.keep(*body);
      }
    };
    expect_alike("unfrozen", unfreeze, 50);

    const auto evaluate_first = [&](Trained& trained) {
      nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 8));
      AdamW optimizer(*net, {});
      Step step(trained,
                [&](const at::Tensor& x) {
                  const auto loss = net->forward(x).square().mean();
                  if (loss.requires_grad()) loss.backward();
                  return loss;
                },
                {.check = checks});
      for (int i = 0; i < 2; ++i) {
        const at::NoGradGuard no_grad;
        step(some_input());
      }
      for (int i = 0; i < 100; ++i) {
        step(some_input());
        if (i < first_pair || i % 2 == 1) {
          optimizer.step();
          optimizer.zero_grad();
        }
        trained.keep(*net);
      }
    };
    expect_alike("evaluated before", evaluate_first, 50);

    const auto in_mid_group = [&](Trained& trained) {
      nn::Linear body(8, 16), head(16, 8);
      nn::Sequential net(body, head);
      for (auto& parameter : body->parameters()) parameter.requires_grad_(false);
      AdamW optimizer(*net, {});
      Step step(trained,
                [&](const at::Tensor& x) {
                  const auto loss = head(at::relu(body(x))).square().mean();
                  loss.backward();
                  return loss;
                },
                {.warm_up = 0, .check = checks});
      for (int i = 0; i < 100; ++i) {
        if (i == 22) {
          for (auto& parameter : body->parameters()) parameter.requires_grad_(true);
        }
        step(some_input());
        if (i % 3 == 2) {
          optimizer.step();
          optimizer.zero_grad();
        }
        trained.keep(*net);
      }
    };
    expect_alike("unfrozen among three batches", in_mid_group, 50);
  }
}

TEST(RecordedGradients, InputsOfSeveralShapesAreAccumulated) {
  for (const bool clips : {false, true}) {
    const auto train = [&](Trained& trained) {
      nn::Sequential net(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 4));
      AdamW optimizer(*net);
      std::vector<std::string> warnings;
      {
        Step step(trained,
                  [&](const at::Tensor& x) {
                    const auto loss = at::cross_entropy_loss(net->forward(x), x.argmax(1).remainder(4));
                    loss.backward();
                    if (clips) clip_grad_norm(optimizer.parameters(), {.max_norm = 0.1});
                    return loss;
                  },
                  {.modules = {*net}, .warn = [&](const std::string& text) { warnings.push_back(text); }});
        for (int i = 0; i < 120; ++i) {
          step(at::randn({i % 7 < 3 ? 16 : 5, 8}));
          if (i % 4 != 3) continue;
          optimizer.step();
          trained.keep(*net);
          if (i % 8 == 3) optimizer.zero_grad();
        }
      }
      EXPECT_THAT(warnings, testing::IsEmpty());
    };
    expect_alike(clips ? "clipped" : "added", train, 80);
  }
}

/// Two steps of one batch, and one that also steps the optimizer and drops the gradients.
TEST(RecordedGradients, TheLastStepOfAnAccumulationDropsThem) {
  for (const bool clips : {false, true}) {
    for (const bool checks : {false, true}) {
      const auto train = [&](Trained& trained) {
        nn::Linear net(8, 4);
        AdamW optimizer(*net);
        std::vector<std::string> warnings;
        const auto loss_of = [&](const at::Tensor& x) {
          const auto loss = at::cross_entropy_loss(net->forward(x), x.argmax(1).remainder(4));
          loss.backward();
          return loss;
        };
        const auto last_step = [&](const at::Tensor& x) {
          const auto loss = loss_of(x);
          if (clips) clip_grad_norm(optimizer.parameters(), {.max_norm = 0.1});
          optimizer.step();
          optimizer.zero_grad();
          return loss;
        };
        {
          const auto warn = [&](const std::string& text) { warnings.push_back(text); };
          Step step(trained, loss_of, {.check = checks, .warn = warn});
          Step last(trained, last_step, {.check = checks, .warn = warn});
          for (int i = 0; i < 60; ++i) {
            (i % 3 < 2 ? step : last)(some_input());
            trained.keep(*net);
          }
        }
        EXPECT_THAT(warnings, testing::IsEmpty());
      };
      expect_alike(clips ? "clipped" : "added", train, 40);
    }
  }
}

TEST(RecordedGradients, OtherTensorsThatTheProgramPutsThereAreNoticed) {
  enum class Other { kViews, kSwapped, kMadeByABackward, kCopied };
  for (const auto other : {Other::kViews, Other::kSwapped, Other::kMadeByABackward, Other::kCopied}) {
    for (const bool zeroes : {false, true}) {
      const auto train = [&](Trained& trained) {
        nn::Linear net(4, 4), twin(4, 4);
        const auto flat = at::ones({2, 16});
        const auto view = [&](int64_t i) { return flat[i].view({4, 4}); };
        net->weight.mutable_grad() = view(0);
        twin->weight.mutable_grad() = view(1);
        {
          Step step(trained,
                    [&](const at::Tensor& x) {
                      if (zeroes) net->zero_grad(/*set_to_none=*/false);
                      const auto loss = at::mse_loss(twin->forward(net->forward(x)), x);
                      loss.backward();
                      return loss;
                    },
                    {.check = false});
          for (int i = 0; i < 40; ++i) {
            if (i == 7) {
              if (other == Other::kViews) net->weight.mutable_grad() = view(1).t();
              if (other == Other::kSwapped) std::swap(net->weight.mutable_grad(), twin->weight.mutable_grad());
              if (other == Other::kCopied) net->weight.mutable_grad() = net->weight.grad().clone();
              if (other == Other::kMadeByABackward) {
                net->zero_grad();
                net->forward(at::ones({3, 4})).sum().backward();
              }
            }
            step(at::randn({5, 4}));
            trained.keep(*net);
            trained.keep(*twin);
          }
        }
      };
      expect_alike(std::to_string(static_cast<int>(other)), train, 20);
    }
  }
}

TEST(RecordedGradients, ALayerThatIsReplacedWhileTheOthersHaveNoGradientsIsNoticed) {
  const auto train = [&](Trained& trained) {
    nn::Linear first(8, 8), second(8, 4);
    {
      Step step(trained, [&](const at::Tensor& x) {
        const auto loss = at::cross_entropy_loss(second->forward(first->forward(x)), x.argmax(1).remainder(4));
        loss.backward();
        return loss;
      });
      for (int i = 0; i < 60; ++i) {
        if (i % 20 == 19) first = nn::Linear(8, 8);
        if (i % 20 == 19) second->zero_grad();
        step(some_input());
        trained.keep(*first);
        trained.keep(*second);
      }
    }
  };
  expect_alike("replaced", train, 40);
}

/// The first step that an optimizer makes, after skipped ones, may fall into a compared call.
TEST(RecordedGradients, SkippedStepsAtTheBeginningAreNoDifference) {
  for (int num_skipped = 0; num_skipped < 8; ++num_skipped) {
    const auto train = [&](Trained& trained) {
      nn::Linear net(8, 4);
      AdamW optimizer(*net);
      GradScaler scaler;
      std::vector<std::string> warnings;
      {
        Step step(trained,
                  [&](const at::Tensor& x) {
                    optimizer.zero_grad();
                    const auto y = net->forward(x);
                    const auto loss = at::cross_entropy_loss(y, at::ones({x.size(0)}, at::kLong));
                    scaler.scale(loss).backward();
                    scaler.step(optimizer);
                    scaler.update();
                    return loss;
                  },
                  {.check_every = 1, .warn = [&](const std::string& text) { warnings.push_back(text); }});
        for (int i = 0; i < 20; ++i) {
          auto x = some_input();
          if (i < num_skipped) x[0][0] = std::numeric_limits<float>::infinity();
          step(x);
          for (const auto& parameter : net->parameters()) trained.keep(parameter);
        }
      }
      EXPECT_THAT(warnings, testing::IsEmpty()) << num_skipped;
    };
    seed({.seed = 1});
    Trained recorded{.is_recorded = true};
    EXPECT_NO_THROW(train(recorded)) << num_skipped;
    EXPECT_GE(recorded.num_replays, 15);
  }
}

/// A loop of yoke's own and libtorch's operator give NaN of other signs.
TEST(RecordedGradients, AnotherNaNIsNoDifference) {
  const auto train = [](Trained& trained) {
    Step step(trained, [](const at::Tensor& x) { return at::log_softmax(x, 1); }, {.check_every = 1});
    for (int i = 0; i < 20; ++i) {
      auto x = some_input();
      x[3][2] = std::numeric_limits<float>::quiet_NaN();
      step(x);
    }
  };
  Trained recorded{.is_recorded = true};
  EXPECT_NO_THROW(train(recorded));
  EXPECT_GE(recorded.num_replays, 15);
}

/// A plan that kept the old network would train that one.
TEST(RecordedGradients, ANetworkWithoutOptimizerThatIsReplacedIsNoticed) {
  const auto train = [&](Trained& trained) {
    std::vector<std::string> warnings;
    nn::Linear net(8, 4);
    c10::weak_intrusive_ptr<c10::TensorImpl> old(net->weight.getIntrusivePtr());
    {
      Step step(trained,
                [&](const at::Tensor& x) {
                  const auto loss = at::cross_entropy_loss(net->forward(x), x.argmax(1).remainder(4));
                  loss.backward();
                  return loss;
                },
                {.check = false, .warn = [&](const std::string& text) { warnings.push_back(text); }});
      for (int i = 0; i < 40; ++i) {
        if (i == 13) net = nn::Linear(8, 4);
        EXPECT_EQ(old.expired(), i >= 13) << "the recording keeps it";
        step(some_input());
        trained.keep(*net);
      }
    }
    EXPECT_LE(warnings.size(), 1);
    if (trained.is_recorded)
      EXPECT_THAT(warnings, testing::Contains(testing::HasSubstr("was replaced by another one")));
  };
  expect_alike("replaced", train, 30);
}

TEST(RecordedGradients, AStepWhoseParametersAreAlwaysNewIsNotRecorded) {
  Small small;
  nn::Linear layer(nullptr);
  Recorded recorded(
      [&](const at::Tensor& x) {
        const auto loss = layer(x).sum();
        loss.backward();
        return loss;
      },
      small.options);
  for (int i = 0; i < 8; ++i) {
    layer = nn::Linear(3, 1);
    recorded(at::randn({4, 3}));
    EXPECT_TRUE(layer->weight.grad().defined());
  }
  EXPECT_EQ(recorded.why_not(), "each of 4 calls in a row has used parameters that no call before had used");
  EXPECT_THAT(small.warnings, testing::SizeIs(1));
}

TEST(RecordedGradients, RatesOfDropoutInRecurrentNetworksAreCompared) {
  const auto train_of = [](auto network) {
    return [network](Trained& trained) mutable {
      network->options.dropout(0.2);
      Step step(trained, [&](const at::Tensor& x) { return std::get<0>(network->forward(x)).detach(); },
                {.check = false, .modules = {*network}});
      for (int i = 0; i < 40; ++i) {
        if (i == 20) network->options.dropout(0.5);
        step(at::randn({5, 2, 4}));
      }
    };
  };
  expect_alike("LSTM", train_of(nn::LSTM(nn::LSTMOptions(4, 6).num_layers(2).dropout(0.2))), 30);
  expect_alike("GRU", train_of(nn::GRU(nn::GRUOptions(4, 6).num_layers(2).dropout(0.2))), 30);
}

TEST(RecordedGradients, TheDefaultDtypeIsCompared) {
  const auto train = [](Trained& trained) {
    const auto before = c10::get_default_dtype();
    Step step(trained, [](const at::Tensor& x) { return x * at::ones({8}); }, {.check = false});
    for (int i = 0; i < 40; ++i) {
      if (i == 20) c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
      step(at::ones({2, 8}, at::kFloat));
    }
    c10::set_default_dtype(before);
  };
  expect_alike("double", train, 30);
}

}  // namespace
}  // namespace yoke::train
