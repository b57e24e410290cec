// Tests DeviceGuardrails on two fake GPUs that use the host's memory (fakes/gpus/host_gpus.cpp).
#include "yoke/train/device/guardrails.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/rmsprop.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/data_parallel.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/precision/grad_scaler.h"

/// A user's functions. They are not in yoke's namespaces, because guardrails never name yoke's own functions.
namespace trainer {

struct Net {
  at::Tensor weight;
};

__attribute__((noinline)) double logged_loss(const Net& net, const at::Tensor& x) {
  return (net.weight * x).sum().item<double>() + 1;  // the addition prevents a tail call, which would drop this frame
}

__attribute__((noinline)) at::Tensor moved(const at::Tensor& x, c10::Device device) {
  auto result = yoke::train::to(x, device);
  result.add_(1);
  return result;
}

}  // namespace trainer

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const c10::Device kCpu(c10::kCPU), kFirst(c10::kCUDA, 0), kSecond(c10::kCUDA, 1);

/// Returns the message with which a guardrail stops `body`; "(nothing thrown)" if none does.
template <class Body>
std::string caught(const Body& body, const GuardrailOptions& options = {}) {
  return test::message_of(
      [&] {
        const DeviceGuardrails guard(options);
        body();
      },
      ErrorCode::kFailedPrecondition);
}

constexpr const char* kNothing = "(nothing thrown)";

TEST(Guardrails, ASyncNamesTheUsersFunctionAndTheOperator) {
  const trainer::Net net{at::ones({3}, kFirst)};
  const auto x = at::ones({3}, kFirst);
  EXPECT_THAT(caught([&] { trainer::logged_loss(net, x); }),
              AllOf(HasSubstr("aten::item of Float [] makes the host wait for cuda:0"),
                    HasSubstr("called by trainer::logged_loss(trainer::Net const&, at::Tensor const&)")));
  EXPECT_EQ(trainer::logged_loss(net, x), 4);  // works outside of the scope
}

TEST(Guardrails, ACopyNamesTheUsersFunctionEvenThroughYoke) {
  EXPECT_THAT(
      caught([&] {
        trainer::moved(at::ones({2, 5}), kSecond);
      }),
      AllOf(HasSubstr("aten::to copies Float [2, 5] from cpu to cuda:1"), HasSubstr("called by trainer::moved(")));
  EXPECT_THAT(caught([&] { trainer::moved(at::ones({2}, kFirst), kSecond); }), HasSubstr("from cuda:0 to cuda:1"));
  EXPECT_EQ(trainer::moved(at::ones({2}), kSecond).device(), kSecond);
}

TEST(RunProgram, NamesTheLineOfTheUsersProgram) {
  const std::vector<std::string> errors = {"program: Target 6 is out of bounds. (", "program: no such file (",
                                           "program: a bad gradient (", "program: a bad sample ("};
  std::vector<std::string> argv = {YOKE_GUARDRAILS_PROGRAM};
  for (const auto& error : errors) {
    argv.push_back("x");
    const auto result = test::Command({.argv = argv}).wait();
    const auto line = result.out.substr(result.out.rfind("line ") + 5);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(error));
    EXPECT_THAT(result.err, HasSubstr("guardrails_program.cpp:" + line.substr(0, line.find('\n')) + ")"));
  }
}

TEST(Guardrails, AProgramWithDebugInformationGetsTheLine) {
  const auto result = test::Command({.argv = {YOKE_GUARDRAILS_PROGRAM}}).wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int line = 0;
  ASSERT_EQ(std::sscanf(result.out.c_str(), "line %d", &line), 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("guardrails_program.cpp:" + std::to_string(line) + ")"));
  EXPECT_THAT(result.out, Not(HasSubstr("loss")));

  const auto inlined = result.out.find("inlined at ");
  ASSERT_NE(inlined, std::string::npos) << result.out;
  ASSERT_EQ(std::sscanf(result.out.c_str() + inlined, "inlined at line %d", &line), 1) << result.out;
  EXPECT_THAT(result.out.substr(inlined), HasSubstr("guardrails_program.cpp:" + std::to_string(line) + ")"));
}

TEST(Guardrails, EverySilentCopyIsCaught) {
  const auto host = at::ones({4}), device = at::ones({4}, kFirst), other = at::ones({4}, kSecond);
  const auto leaf = at::ones({4}, kFirst).requires_grad_();
  EXPECT_THAT(caught([&] { device.cpu(); }), HasSubstr("aten::to copies Float [4] from cuda:0 to cpu"));
  EXPECT_THAT(caught([&] { leaf.cpu(); }), HasSubstr("from cuda:0 to cpu"));  // through autograd's kernel
  EXPECT_THAT(caught([&] { device.slice(0, 1, 3).to(kCpu); }), HasSubstr("Float [2]"));
  EXPECT_THAT(caught([&] { host.cuda(); }), HasSubstr("from cpu to cuda:0"));
  EXPECT_THAT(caught([&] { device.copy_(host); }), HasSubstr("aten::copy_ copies"));
  EXPECT_THAT(caught([&] { device.slice(0, 0, 2).copy_(host.slice(0, 2)); }),
              HasSubstr("aten::copy_ copies Float [2]"));
  EXPECT_THAT(caught([&] { device.copy_(other); }), HasSubstr("from cuda:1 to cuda:0"));
  EXPECT_THAT(caught([&] { device.to(host.options()); }), HasSubstr("from cuda:0 to cpu"));
  EXPECT_THAT(caught([&] { host.to(device.options().dtype(at::kDouble)); }), HasSubstr("aten::to copies"));
  EXPECT_THAT(caught([&] { torch::tensor({1, 2}, kFirst); }), HasSubstr("from cpu to cuda:0"));
  EXPECT_THAT(caught([&] { std::ostringstream() << device; }), HasSubstr("from cuda:0 to cpu"));
  EXPECT_THAT(caught([&] { host.to(kFirst, /*non_blocking=*/true); }), HasSubstr("from cpu to cuda:0"));  // pageable
  EXPECT_THAT(caught([&] { host.pin_memory().to(kFirst); }), HasSubstr("from cpu to cuda:0"));            // blocking
}

TEST(Guardrails, EverySyncIsCaught) {
  const auto x = at::arange(4).to(kFirst), mask = x > 1;
  const auto real = x.to(at::kFloat);
  const std::vector<std::pair<const char*, std::function<void()>>> rows = {
      {"aten::item", [&] { x[0].item(); }},
      {"aten::is_nonzero", [&] { (void)mask[0].is_nonzero(); }},
      {"aten::equal", [&] { at::equal(x, x); }},
      {"aten::allclose", [&] { at::allclose(real, real); }},
      {"aten::nonzero", [&] { at::nonzero(x); }},
      {"aten::masked_select", [&] { at::masked_select(x, mask); }},
      {"aten::index", [&] { x.index({mask}); }},
      {"aten::index_put_", [&] { x.clone().index_put_({mask}, at::ones({2}, x.options())); }},
      {"aten::_unique2", [&] { at::_unique2(x); }},
      {"aten::unique_dim", [&] { at::unique_dim(x, 0); }},
      {"aten::unique_consecutive", [&] { at::unique_consecutive(x); }},
      {"aten::bincount", [&] { at::bincount(x); }},
      {"aten::repeat_interleave", [&] { at::repeat_interleave(x); }},
      {"aten::item", [&] { at::one_hot(x); }},  // one_hot() reads the largest class
  };
  for (const auto& [name, body] : rows) {
    EXPECT_THAT(caught(body), AllOf(HasSubstr(std::string(name) + " of "), HasSubstr("wait for cuda:0"))) << name;
    const auto attempt = [&, run = &body] {
      try {
        (*run)();
      } catch (const c10::Error&) {  // the fake devices lack the in-place resize of some operators
      }
    };
    EXPECT_EQ(caught(attempt, {.syncs = false}), kNothing) << name;
  }
}

TEST(Guardrails, WhatDoesNotWaitIsAllowed) {
  const auto x = at::arange(4).to(kFirst), host = at::ones({4});
  const std::vector<std::pair<const char*, std::function<void()>>> rows = {
      {"arithmetic with numbers", [&] { x.add(5).mul(2.5).sum().div_(3).fill_(7).zero_(); }},
      {"a number of the host as operand", [&] { x + at::ones({}); }},
      {"factories on the device",
       [&] { at::full({2}, 5, kFirst), torch::tensor(5, kFirst), at::zeros({2}, kSecond), at::randn({2}, kFirst); }},
      {"views and copies on one device",
       [&] {
         x.view({2, 2}).t().contiguous().copy_(x.view({2, 2}));
       }},
      {"another dtype", [&] { x.to(at::kFloat).to(kFirst); }},
      {"indices that are numbers", [&] { x.index({x}); }},
      {"a number written through a mask", [&] { x.clone().index_put_({x > 1}, at::ones({}, at::kLong)); }},
      {"a size that is given", [&] { at::repeat_interleave(at::ones_like(x), 4); }},
      {"the host alone", [&] { host.nonzero(), host.sum().item(), host.index({host > 0}), host.to(at::kDouble); }},
      {"from pinned memory, asynchronously", [&] { host.pin_memory().to(kFirst, /*non_blocking=*/true); }},
      {"between devices, asynchronously", [&] { x.to(kSecond, /*non_blocking=*/true); }},
      {"meta", [&] { x.to(c10::kMeta); }},
      {"nothing", [&] { at::ones({0}).to(kFirst); }},
  };
  for (const auto& [what, body] : rows) EXPECT_EQ(caught(body), kNothing) << what;
}

TEST(Guardrails, OptionsChooseTheKinds) {
  const auto device = at::ones({4}, kFirst), other = at::ones({4}, kSecond);
  EXPECT_EQ(caught([&] { device.cpu(); }, {.copies = false, .syncs = false}), kNothing);
  EXPECT_THAT(caught([&] { device.cpu(); }, {.copies = false}), HasSubstr("aten::to of Float [4] makes the host wait"));
  EXPECT_EQ(caught([&] { device.copy_(other); }, {.copies = false}), kNothing);
  EXPECT_EQ(caught([&] { device.sum().item(); }, {.syncs = false}), kNothing);
}

TEST(Guardrails, AllowAndNestedScopesLastUntilTheirEnd) {
  const auto device = at::ones({4}, kFirst);
  const auto throws = [&] {
    try {
      device.cpu();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_FALSE(throws());
  {
    const DeviceGuardrails outer;
    EXPECT_TRUE(throws());
    {
      const DeviceGuardrails::Allow allow;
      EXPECT_FALSE(throws());
      {
        const DeviceGuardrails inner;
        EXPECT_TRUE(throws());
      }
      EXPECT_FALSE(throws());
    }
    EXPECT_TRUE(throws());
    {
      const GuardrailReport report;
      const DeviceGuardrails inner(report);
      EXPECT_FALSE(throws());
      EXPECT_EQ(report.places().size(), 1u);
    }
    EXPECT_TRUE(throws());
  }
  EXPECT_FALSE(throws());
}

TEST(Guardrails, AReportCountsPlacesOnceAndReturnsTheSameResults) {
  const trainer::Net net{at::ones({3}, kFirst)};
  const auto x = at::ones({3}, kFirst);
  const GuardrailReport report;
  for (int i = 0; i < 5; ++i) {
    const DeviceGuardrails guard(report);
    EXPECT_EQ(trainer::logged_loss(net, x), 4);
    if (i < 2) continue;
    EXPECT_TRUE(at::equal(trainer::moved(x, kCpu), at::full({3}, 2)));
  }
  const auto places = report.places();
  ASSERT_EQ(places.size(), 2u) << report.to_text();
  EXPECT_EQ(places[0].kind, GuardrailKind::kSync);
  EXPECT_EQ(places[0].operation, "aten::item");
  EXPECT_EQ(places[0].count, 5);
  EXPECT_THAT(places[0].function, HasSubstr("trainer::logged_loss"));
  EXPECT_EQ(places[1].kind, GuardrailKind::kCopy);
  EXPECT_EQ(places[1].count, 3);
  EXPECT_EQ(places[1].bytes, 3 * 12);
  EXPECT_EQ(nlohmann::json::parse(report.to_json())["places"].size(), 2u);
}

/// Runs `body` as the backward pass of `x * 2`.
struct InBackward : torch::autograd::Function<InBackward> {
  static inline std::function<void(const at::Tensor&)> body;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    body(gradients[0]);
    return {gradients[0] * 2};
  }
};

TEST(Guardrails, AutogradsThreadsAreGuarded) {
  const auto x = at::ones({3}, kFirst).requires_grad_();
  std::thread::id thread;
  const auto hooked = [&](const std::function<void(const at::Tensor&)>& body) {
    const auto y = x * 2;
    y.register_hook([&, body](const at::Tensor& gradient) {
      thread = std::this_thread::get_id();
      body(gradient);
    });
    return y.sum();
  };
  const auto sync = [](const at::Tensor& gradient) { gradient.sum().item<float>(); };
  EXPECT_THAT(caught([&] { hooked(sync).backward(); }), HasSubstr("aten::item of Float [] makes the host wait"));
  EXPECT_NE(thread, std::this_thread::get_id());  // the engine runs this device's backward on its own thread

  // The error left no state behind, neither on the engine's thread nor on this one.
  x.mutable_grad().reset();
  hooked(sync).backward();
  EXPECT_TRUE(at::equal(x.grad().cpu(), at::full({3}, 2)));
  EXPECT_EQ(caught([&] { hooked([](const at::Tensor&) {}).backward(); }), kNothing);

  InBackward::body = sync;
  EXPECT_THAT(caught([&] { InBackward::apply(x).sum().backward(); }), HasSubstr("in the backward of "));
  // Allow applies to a backward inside its scope, and to the hook that constructs it.
  EXPECT_EQ(caught([&] {
              const DeviceGuardrails::Allow allow;
              hooked(sync).backward();
            }),
            kNothing);
  EXPECT_EQ(caught([&] {
              hooked([&](const at::Tensor& gradient) {
                const DeviceGuardrails::Allow allow;
                sync(gradient);
              }).backward();
            }),
            kNothing);
}

TEST(Guardrails, ACopyOfTheGradientsIsCaughtInBackward) {
  const auto x = at::ones({3}).requires_grad_();
  const auto there = x.to(kFirst);
  EXPECT_THAT(caught([&] { there.sum().backward(); }),
              AllOf(HasSubstr("copies Float [3] from cuda:0 to cpu"), HasSubstr("in the backward of ToCopyBackward0")));
}

TEST(Guardrails, EachThreadHasItsOwn) {
  const auto device = at::ones({4}, kFirst);
  const GuardrailReport mine, other;
  std::atomic<bool> guarded = false, done = false;
  const DeviceGuardrails guard(mine);
  std::thread thread([&] {
    device.cpu();  // a new thread has no guardrail
    const DeviceGuardrails of_thread(other);
    guarded = true;
    while (!done) std::this_thread::yield();
    const auto x = at::ones({1}, kSecond).requires_grad_();
    const auto y = x * 2;
    y.register_hook([](const at::Tensor& gradient) { gradient.item(); });
    y.backward();
  });
  while (!guarded) std::this_thread::yield();
  device.cpu();
  done = true;
  thread.join();
  ASSERT_EQ(mine.places().size(), 1u) << mine.to_text();
  EXPECT_EQ(mine.places()[0].operation, "aten::to");
  ASSERT_EQ(other.places().size(), 1u) << other.to_text();
  EXPECT_EQ(other.places()[0].operation,
            "aten::item");  // found by the engine's thread, counted for its caller
}

// libtorch passes a thread's state to tasks that may run after the scope has ended.
TEST(Guardrails, StateThatOutlivesTheScopeDoesNothing) {
  std::optional<at::ThreadLocalState> state;
  {
    const DeviceGuardrails guard;
    state.emplace();
  }
  const at::ThreadLocalStateGuard later(*state);
  EXPECT_NO_THROW(at::ones({4}, kFirst).cpu());
}

TEST(Guardrails, InferenceAndNoGradModesAreGuarded) {
  const auto device = at::ones({4}, kFirst);
  const auto is_caught = [&] { return caught([&] { device.sum().item(); }) != kNothing; };
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(is_caught());
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(is_caught());
  }
  const DeviceGuardrails guard;
  {
    const c10::InferenceMode inside;
    EXPECT_THROW(device.cpu(), Error);
    const DeviceGuardrails::Allow allow;
    EXPECT_NO_THROW(device.cpu());
  }
  EXPECT_THROW(device.cpu(), Error);
}

// Profilers may add and remove RecordFunction callbacks before, during or after the scope, in any order.
TEST(Guardrails, AProfilersCallbacksMayBeginAndEndInsideOrOutside) {
  static std::atomic<int> num_calls = 0;
  const auto observe = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
    return ++num_calls, nullptr;
  };
  const auto device = at::ones({4}, kFirst);
  const auto before = at::addThreadLocalCallback(at::RecordFunctionCallback(observe));
  uint64_t within = 0;
  {
    const DeviceGuardrails guard;
    within = at::addThreadLocalCallback(at::RecordFunctionCallback(observe));
    at::removeCallback(before);
    num_calls = 0;
    EXPECT_THROW(device.cpu(), Error);
    EXPECT_GT(num_calls, 0);
  }
  num_calls = 0;
  device.cpu();
  EXPECT_GT(num_calls, 0);
  at::removeCallback(within);
}

TEST(Guardrails, TrainingStepsOfYokeNeitherCopyNorWait) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  to(*model, kFirst);
  const auto parameters = model->named_parameters().pairs();
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  optimizers.push_back(std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9}));
  optimizers.push_back(std::make_unique<AdamW>(parameters, AdamWOptions{}));
  optimizers.push_back(std::make_unique<Adagrad>(parameters, AdagradOptions{}));
  optimizers.push_back(std::make_unique<NAdam>(parameters, NAdamOptions{}));
  optimizers.push_back(std::make_unique<RMSprop>(parameters, RMSpropOptions{}));
  Loader loader(Samples{at::randn({12, 4}), at::randn({12, 2})}, {.batch_size = 4, .num_workers = 2, .device = kFirst});
  for (auto& optimizer : optimizers) {
    Mean loss_of_epoch;
    const DeviceGuardrails guard;  // the scope includes the loader
    for (const auto& batch : loader.epoch(0)) {
      optimizer->zero_grad();
      at::Tensor loss;
      {
        const Autocast autocast({.device_type = c10::kCUDA, .dtype = at::kBFloat16});
        loss = (model->forward(batch.data).to(at::kFloat) - batch.target).square().mean();
      }
      loss.backward();
      clip_grad_norm(parameters, {.max_norm = 1});
      optimizer->step(0.01);
      loss_of_epoch.add(loss.detach(), batch.data.size(0));
    }
  }
  AdamW optimizer(parameters, {});
  GradScaler scaler({.init_scale = 8});
  const auto x = at::randn({4, 4}, kFirst);
  const DeviceGuardrails guard;
  for (int i = 0; i < 3; ++i) {
    scaler.scale(model->forward(x).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
}

TEST(Guardrails, DataParallelsCopiesAreMeant) {
  torch::nn::Sequential model(torch::nn::Linear(4, 2));
  DataParallel parallel(model.ptr());
  const auto x = at::randn({8, 4}, kFirst);
  EXPECT_EQ(caught([&] { parallel.forward(x).square().mean().backward(); }), kNothing);
  // A replica's thread must be guarded like the thread that started it.
  EXPECT_THAT(caught([&] {
                try {
                  parallel.run([](auto& one, const auto& inputs) { return std::vector{one.forward(inputs[0].cpu())}; },
                               {x});
                } catch (const c10::Error& error) {
                  throw Error(ErrorCode::kFailedPrecondition, std::string(error.what()));
                }
              }),
              HasSubstr("aten::to copies Float [4, 4] from cuda:"));
}

TEST(Guardrails, AnErrorInAStepLeavesATrainingThatGoesOn) {
  torch::nn::Linear layer(3, 1);
  to(*layer, kFirst);
  Sgd optimizer(layer, {.lr = 0.1});
  const auto x = at::ones({2, 3}, kFirst);
  const auto before = layer->weight.detach().clone();
  const auto step = [&](bool waits) {
    optimizer.zero_grad();
    const auto output = layer->forward(x);
    if (waits) output.register_hook([](const at::Tensor& gradient) { gradient.cpu(); });
    output.sum().backward();
    optimizer.step();
  };
  EXPECT_THAT(caught([&] { step(true); }), HasSubstr("from cuda:0 to cpu"));
  EXPECT_TRUE(at::equal(layer->weight.cpu(), before.cpu()));
  EXPECT_EQ(caught([&] { step(false); }), kNothing);
  EXPECT_TRUE(at::allclose(layer->weight.cpu(), before.cpu() - 0.2));
}

}  // namespace
}  // namespace yoke::train
