#include "yoke/train/parallel/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <mutex>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::train {
namespace {

using dist::World;
using fakes::run_ranks;
namespace nn = torch::nn;

constexpr int64_t kChannels = 3;
const std::vector<int64_t> kRows = {5, 2, 0, 3};  ///< Rows of each rank, which determine its range of the whole batch.

/// Returns a deterministic tensor with values around `mean`.
at::Tensor numbers(const std::vector<int64_t>& shape, double frequency, double mean = 0) {
  return torch::sin(torch::arange(c10::multiply_integers(shape), torch::kDouble) * frequency).reshape(shape) + mean;
}

struct Input {
  std::vector<int64_t> inner;  ///< The dimensions after [batch, channels].
  bool channels_last = false;
  c10::ScalarType dtype = torch::kDouble;
};

/// One batch norm, trained for three steps with output gradients `dy`.
struct Trained {
  std::vector<at::Tensor> outputs, input_gradients;  ///< One entry per step.
  std::vector<at::Tensor> parameter_gradients, buffers;
};

template <class Norm>
Trained train(Norm& norm, const Input& form, int64_t first, int64_t rows) {
  Trained result;
  norm.to(form.dtype == torch::kDouble ? torch::kDouble : torch::kFloat);
  if (norm.weight.defined()) {
    const torch::NoGradGuard no_grad;
    norm.weight.copy_(numbers({kChannels}, 1.3, 1));
    norm.bias.copy_(numbers({kChannels}, 2.1));
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<int64_t> shape = {10, kChannels};
    shape.insert(shape.end(), form.inner.begin(), form.inner.end());
    auto x = numbers(shape, 0.7 + step, 3).narrow(0, first, rows).to(form.dtype);
    auto dy = numbers(shape, 1.9 + step).narrow(0, first, rows).to(form.dtype);
    x = form.channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x.contiguous();
    x.requires_grad_();
    const auto y = norm.forward(x);
    y.backward(dy);
    result.outputs.push_back(y.detach());
    result.input_gradients.push_back(x.grad());
  }
  for (const auto& parameter : norm.parameters()) result.parameter_gradients.push_back(parameter.grad());
  for (const auto& buffer : norm.buffers()) result.buffers.push_back(buffer);
  return result;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const std::string& what) {
  EXPECT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  EXPECT_TRUE(torch::allclose(actual, expected, tolerance, tolerance)) << what << "\n" << actual << "\n" << expected;
}

// Oracle: batches of 5, 2, 0 and 3 rows on four ranks equal one batch of 10 rows.
template <class BatchNorm>
void expect_like_one_process(const nn::BatchNormOptions& options, const Input& form, double tolerance = 1e-12) {
  BatchNorm whole(options);
  const auto expected = train(*whole, form, 0, 10);
  run_ranks(4, [&](World& world) {
    SyncBatchNorm norm(options);
    norm->synchronize(world);
    int64_t first = 0;
    const auto rank = static_cast<size_t>(world.rank());
    for (size_t before = 0; before < rank; ++before) first += kRows[before];
    const auto actual = train(*norm, form, first, kRows[rank]);
    for (size_t step = 0; step < 3; ++step) {
      expect_close(actual.outputs[step], expected.outputs[step].narrow(0, first, kRows[rank]), tolerance, "output");
      expect_close(actual.input_gradients[step], expected.input_gradients[step].narrow(0, first, kRows[rank]),
                   tolerance, "gradient of the input");
    }
    for (size_t i = 0; i < expected.parameter_gradients.size(); ++i) {  // each rank has its part of the sum
      const auto sum = actual.parameter_gradients[i].clone();
      world.all_reduce(sum);
      expect_close(sum, expected.parameter_gradients[i], 10 * tolerance, "gradient of a parameter");
    }
    for (size_t i = 0; i < expected.buffers.size(); ++i) {
      expect_close(actual.buffers[i], expected.buffers[i], tolerance, "running statistics");
    }
  });
}

TEST(SyncBatchNorm, ManyRanksAreOneBatch) {
  const nn::BatchNormOptions options(kChannels);
  expect_like_one_process<nn::BatchNorm1d>(options, {.inner = {}});
  expect_like_one_process<nn::BatchNorm1d>(options, {.inner = {4}});
  expect_like_one_process<nn::BatchNorm2d>(options, {.inner = {4, 2}});
  expect_like_one_process<nn::BatchNorm2d>(options, {.inner = {4, 2}, .channels_last = true});
  expect_like_one_process<nn::BatchNorm3d>(options, {.inner = {2, 2, 3}});
}

// Two groups of two ranks. Each group normalises only over the rows of its own ranks.
TEST(SyncBatchNorm, OfTheRanksOfAGroup) {
  const nn::BatchNormOptions options(kChannels);
  nn::BatchNorm1d upper(options), lower(options);
  const std::vector<Trained> expected = {train(*upper, {}, 0, 7), train(*lower, {}, 7, 3)};
  run_ranks(4, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank()), half = rank / 2;
    const std::vector<int64_t> begins = {0, 5, 7, 7};  // first row of each rank
    auto group = world.split(world.rank() / 2);
    SyncBatchNorm norm(options);
    norm->synchronize(group);
    const auto actual = train(*norm, {}, begins[rank], kRows[rank]);
    for (size_t step = 0; step < 3; ++step) {
      const auto rows = expected[half].outputs[step].narrow(0, begins[rank] - begins[2 * half], kRows[rank]);
      expect_close(actual.outputs[step], rows, 1e-12, "output");
    }
    for (size_t i = 0; i < actual.buffers.size(); ++i) {
      expect_close(actual.buffers[i], expected[half].buffers[i], 1e-12, "running statistics");
    }
  });
}

TEST(SyncBatchNorm, OfLowerPrecisionToo) {
  const nn::BatchNormOptions options(kChannels);
  expect_like_one_process<nn::BatchNorm2d>(options, {.inner = {4, 2}, .dtype = torch::kFloat}, 1e-5);
  expect_like_one_process<nn::BatchNorm2d>(options, {.inner = {4, 2}, .dtype = torch::kBFloat16}, 4e-2);
}

TEST(SyncBatchNorm, WithEveryOption) {
  expect_like_one_process<nn::BatchNorm1d>(nn::BatchNormOptions(kChannels).affine(false), {});
  expect_like_one_process<nn::BatchNorm1d>(nn::BatchNormOptions(kChannels).momentum(std::nullopt), {});
  expect_like_one_process<nn::BatchNorm1d>(nn::BatchNormOptions(kChannels).momentum(0.5).eps(0.1), {});
  expect_like_one_process<nn::BatchNorm1d>(nn::BatchNormOptions(kChannels).track_running_stats(false), {});
}

TEST(SyncBatchNorm, EvaluatesAlone) {
  run_ranks(2, [](World& world) {
    SyncBatchNorm norm(kChannels);
    norm->synchronize(world);
    norm->eval();
    if (world.rank() == 1) return;  // evaluation is not collective, so the other ranks do not wait for this one
    const auto x = numbers({4, kChannels}, 1).to(torch::kFloat);
    nn::BatchNorm1d plain(kChannels);
    plain->eval();
    EXPECT_TRUE(torch::equal(norm(x), plain(x)));
  });
}

TEST(SyncBatchNorm, RefusesWhatHasNoVariance) {
  std::atomic<int> num_errors = 0;
  run_ranks(2, [&](World& world) {
    SyncBatchNorm norm(kChannels);
    norm->synchronize(world);
    EXPECT_THROW(norm(torch::ones({4, kChannels + 1})), Error);
    EXPECT_THROW(norm(torch::ones({4})), Error);
    const std::vector<std::pair<int64_t, std::string>> cases = {{world.rank(), "one value per channel"},
                                                                {0, "no value per channel"}};
    for (const auto& [rows, reason] : cases) {
      try {
        norm(torch::ones({rows, kChannels}));
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(reason));
        ++num_errors;
      }
    }
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::zeros({kChannels})));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  });
  EXPECT_EQ(num_errors, 4);
}

// BatchNorm checks this too. Without the check, the running variance would become NaN and stay NaN.
TEST(SyncBatchNorm, RefusesWhatHasNoVarianceOnOneRankToo) {
  run_ranks(1, [](World& world) {
    SyncBatchNorm norm(kChannels);
    EXPECT_THROW(norm(torch::ones({1, kChannels})), Error);
    norm->synchronize(world);
    EXPECT_THROW(norm(torch::ones({1, kChannels})), Error);
    EXPECT_TRUE(torch::equal(norm->running_var, torch::ones({kChannels})));
    norm->eval();
    norm(torch::ones({1, kChannels}));
  });
}

TEST(SyncBatchNorm, AModelOfLowerPrecision) {
  run_ranks(2, [](World& world) {
    const auto x = numbers({4, kChannels, 2}, 1).to(torch::kBFloat16);
    nn::BatchNorm1d whole(kChannels);
    whole->to(torch::kBFloat16);
    const auto expected = whole(x);
    expected.square().sum().backward();
    SyncBatchNorm norm(kChannels);
    norm->to(torch::kBFloat16);
    norm->synchronize(world);
    const auto actual = norm(x.narrow(0, 2 * world.rank(), 2));
    actual.square().sum().backward();
    expect_close(actual.detach(), expected.detach().narrow(0, 2 * world.rank(), 2), 4e-2, "output");
    const auto sum = norm->weight.grad().to(torch::kFloat);
    world.all_reduce(sum);
    expect_close(sum, whole->weight.grad().to(torch::kFloat), 4e-2, "gradient");
    expect_close(norm->running_var, whole->running_var, 4e-2, "running statistics");
  });
}

TEST(SyncBatchNorm, RefusesGradientsOfGradients) {
  run_ranks(2, [](World& world) {
    SyncBatchNorm norm(kChannels);
    norm->synchronize(world);
    const auto x = numbers({4, kChannels}, 1 + static_cast<double>(world.rank())).to(torch::kFloat).requires_grad_();
    const auto loss = norm(x).pow(3).sum();
    EXPECT_THROW(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true), Error);
  });
}

struct Block : nn::Module {
  nn::Sequential layers{nullptr};
  Block() {
    const nn::BatchNorm1d norm(nn::BatchNormOptions(kChannels).momentum(0.3));
    layers = register_module("layers", nn::Sequential(nn::Linear(kChannels, kChannels), norm));
  }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
};

nn::Sequential make_network() {
  nn::Sequential network;
  network->push_back("norm", nn::BatchNorm1d(kChannels));
  network->push_back("block", Block());
  network->push_back("last", SyncBatchNorm(kChannels));
  return network;
}

TEST(ConvertSyncBatchNorm, KeepsNamesParametersAndStatistics) {
  run_ranks(2, [](World& world) {
    auto network = make_network();
    const auto x = numbers({4, kChannels}, 1 + static_cast<double>(world.rank())).to(torch::kFloat);
    network->forward(x);
    const auto parameters = network->named_parameters(), buffers = network->named_buffers();
    EXPECT_EQ(convert_sync_batch_norm(*network, world), 3);
    EXPECT_EQ(convert_sync_batch_norm(*network, world), 3) << "a second time changes nothing";

    EXPECT_EQ(network->named_parameters().keys(), parameters.keys());
    EXPECT_EQ(network->named_buffers().keys(), buffers.keys());
    for (const auto& item : network->named_parameters()) {
      EXPECT_TRUE(item.value().is_same(parameters[item.key()])) << item.key() << ": an optimizer holds the old one";
    }
    for (const auto& item : network->named_buffers()) EXPECT_TRUE(torch::equal(item.value(), buffers[item.key()]));
    const auto sum = network->forward(x).detach().sum(0);
    world.all_reduce(sum);
    EXPECT_TRUE(torch::allclose(sum, torch::zeros({kChannels}), 0, 1e-5)) << "the mean over all ranks is zero";
    EXPECT_EQ(network->named_buffers()["block.layers.1.num_batches_tracked"].item<int64_t>(), 2);
  });
}

TEST(ConvertSyncBatchNorm, NamesWhatItCannotReach) {
  struct Typed : nn::Module {
    nn::BatchNorm2d norm{nullptr};
    nn::Sequential rest{nullptr};
    Typed() {
      norm = register_module("norm", nn::BatchNorm2d(kChannels));
      rest = register_module("rest", make_network());
    }
  };
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  Typed typed;
  try {
    convert_sync_batch_norm(typed, world);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), testing::HasSubstr("not in a Sequential: norm;"));
  }
  EXPECT_NE(typed.rest[0]->as<nn::BatchNorm1d>(), nullptr) << "nothing is changed";
  EXPECT_THROW(convert_sync_batch_norm(*nn::BatchNorm1d(3), world), Error);
}

TEST(ConvertSyncBatchNorm, ClonesAreSynchronizedToo) {
  run_ranks(2, [](World& world) {
    SyncBatchNorm norm(kChannels);
    norm->synchronize(world);
    const auto clone = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
    const auto sum = clone->forward(numbers({4, kChannels}, 1 + static_cast<double>(world.rank())).to(torch::kFloat))
                         .detach()
                         .sum(0);
    world.all_reduce(sum);
    EXPECT_TRUE(torch::allclose(sum, torch::zeros({kChannels}), 0, 1e-5));
  });
}

}  // namespace
}  // namespace yoke::train
