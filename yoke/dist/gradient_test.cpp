#include "yoke/dist/gradient.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fakes/run_ranks.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

/// Numbers that differ between ranks and elements. The same formula is in
/// tests/reference/record_gradient_collectives.py.
at::Tensor numbers(at::IntArrayRef shape, double start) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).mul(0.7).add(start).sin().view(shape);
}

/// A loss of one rank that is not linear in `result`, so that gradients of gradients are not zero.
at::Tensor loss_of(const at::Tensor& result, int64_t rank) {
  const auto real = result.is_complex() ? at::view_as_real(result.resolve_conj()) : result;
  return (real * numbers(real.sizes(), 2.1 * static_cast<double>(rank) + 1)).sin().sum();
}

at::Tensor gradient_of(const at::Tensor& loss, const at::Tensor& input, bool create_graph = false) {
  return torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/std::nullopt, create_graph)[0];
}

/// A function of this file's subject, and the same in one process, which has the tensors of all ranks.
struct Passing {
  const char* name;
  std::function<at::Tensor(Group& group, const at::Tensor& own)> on_ranks;
  std::function<at::Tensor(const Tensors& all, int64_t rank)> in_one;
  std::function<at::Tensor(int64_t rank, int64_t size)> input = [](int64_t rank, int64_t size) {
    return numbers({size, 2}, 1.3 * static_cast<double>(rank));
  };
};

at::Tensor sum_of(const Tensors& all) { return at::stack(all).sum(0); }

/// Rank r sends r + 2 t + 1 rows to rank t.
Splits splits_of(int64_t rank, int64_t size) {
  Splits splits;
  for (int64_t other = 0; other < size; ++other) {
    splits.input.push_back(rank + 2 * other + 1);
    splits.output.push_back(other + 2 * rank + 1);
  }
  return splits;
}

const std::vector<Passing>& functions() {
  static const std::vector<Passing> all_functions = {
      {"all_reduce", [](Group& group, const at::Tensor& own) { return gradient::all_reduce(group, own); },
       [](const Tensors& all, int64_t) { return sum_of(all); }},
      {"all_reduce, mean, not contiguous",
       [](Group& group, const at::Tensor& own) { return gradient::all_reduce(group, own.t(), ReduceOp::kMean); },
       [](const Tensors& all, int64_t) { return at::stack(all).mean(0).t(); }},
      {"all_reduce, scalar",
       [](Group& group, const at::Tensor& own) { return gradient::all_reduce(group, own.exp().sum()); },
       [](const Tensors& all, int64_t) { return at::stack(all).exp().sum(); }},
      {"broadcast",
       [](Group& group, const at::Tensor& own) { return gradient::broadcast(group, own, group.size() - 1); },
       [](const Tensors& all, int64_t) { return all.back() + 0 * sum_of(all); }},
      {"all_gather", [](Group& group, const at::Tensor& own) { return gradient::all_gather(group, own); },
       [](const Tensors& all, int64_t) { return at::stack(all); }},
      {"all_gather, expanded",
       [](Group& group, const at::Tensor& own) {
         return gradient::all_gather(group, own.select(0, 0).unsqueeze(1).expand({2, 3}));
       },
       [](const Tensors& all, int64_t) {
         return at::stack(all).select(1, 0).unsqueeze(2).expand({-1, 2, 3});
       }},
      {"all_gather_rows",
       [](Group& group, const at::Tensor& own) { return gradient::all_gather_rows(group, own).rows; },
       [](const Tensors& all, int64_t) { return at::cat(all); },
       [](int64_t rank, int64_t) {
         return numbers({rank == 1 ? 0 : rank + 2, 2}, static_cast<double>(rank));
       }},
      {"reduce_scatter", [](Group& group, const at::Tensor& own) { return gradient::reduce_scatter(group, own); },
       [](const Tensors& all, int64_t rank) { return sum_of(all).narrow(0, rank, 1); }},
      {"reduce_scatter, mean, not contiguous",
       [](Group& group, const at::Tensor& own) { return gradient::reduce_scatter(group, own.t(), ReduceOp::kMean); },
       [](const Tensors& all, int64_t rank) { return at::stack(all).mean(0).t().narrow(0, 2 * rank, 2); },
       [](int64_t rank, int64_t size) {
         return numbers({2, 2 * size}, static_cast<double>(rank));
       }},
      {"all_to_all", [](Group& group, const at::Tensor& own) { return gradient::all_to_all(group, own); },
       [](const Tensors& all, int64_t rank) { return at::stack(all).select(1, rank); }},
      {"all_to_all, uneven",
       [](Group& group, const at::Tensor& own) {
         return gradient::all_to_all(group, own, splits_of(group.rank(), group.size()));
       },
       [](const Tensors& all, int64_t rank) {
         Tensors parts;
         for (size_t other = 0; other < all.size(); ++other) {
           const auto splits = splits_of(static_cast<int64_t>(other), std::ssize(all)).input;
           parts.push_back(all[other].split_with_sizes(splits)[static_cast<size_t>(rank)]);
         }
         return at::cat(parts);
       },
       [](int64_t rank, int64_t size) {
         return numbers({size * (rank + size), 1}, static_cast<double>(rank));
       }},
      {"all_gather, complex and conjugated",
       [](Group& group, const at::Tensor& own) { return gradient::all_gather(group, own.conj()); },
       [](const Tensors& all, int64_t) { return at::stack(all).conj().resolve_conj(); },
       [](int64_t rank, int64_t) {
         return at::complex(numbers({2}, static_cast<double>(rank)), numbers({2}, static_cast<double>(rank) + 0.5));
       }},
  };
  return all_functions;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(actual, expected, tolerance, tolerance)) << what << ": " << actual << " for " << expected;
}

/// What one process gives that has the tensors of all ranks; an element for each rank.
struct Expected {
  Tensors inputs, results, gradients;
  Tensors second;  ///< Gradients of a loss that is made of the gradients.
};

Expected in_one_process(const Passing& one, int64_t size) {
  Expected expected;
  for (int64_t rank = 0; rank < size; ++rank) expected.inputs.push_back(one.input(rank, size).requires_grad_());
  auto total = at::zeros({}, at::kDouble), of_gradients = at::zeros({}, at::kDouble);
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto result = one.in_one(expected.inputs, rank);
    total = total + loss_of(result, rank);
    expected.results.push_back(result.detach());
  }
  expected.gradients = torch::autograd::grad({total}, expected.inputs, {}, std::nullopt, /*create_graph=*/true);
  for (int64_t rank = 0; rank < size; ++rank) {
    auto& gradient = expected.gradients[static_cast<size_t>(rank)];
    of_gradients = of_gradients + loss_of(gradient, rank + 5);
    gradient = gradient.detach();
  }
  expected.second = torch::autograd::grad({of_gradients}, expected.inputs);
  return expected;
}

// Oracle: the same computation in one process, with the gradient of the sum of all ranks' losses.
TEST(Gradient, IsThatOfOneProcess) {
  for (const int64_t size : {1, 2, 3}) {
    std::vector<Expected> expected;
    for (const auto& one : functions()) expected.push_back(in_one_process(one, size));
    run_ranks(size, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto what = c10::str(functions()[i].name, " on rank ", rank, " of ", size);
        const auto own = expected[i].inputs[rank].detach().clone().requires_grad_();
        const auto result = functions()[i].on_ranks(world, own);
        EXPECT_TRUE(result.requires_grad());
        expect_close(result.detach(), expected[i].results[rank], 1e-12, what);
        const auto gradient = gradient_of(loss_of(result, world.rank()), own, /*create_graph=*/true);
        expect_close(gradient.detach(), expected[i].gradients[rank], 1e-12, "gradient of " + what);
        const auto second = gradient_of(loss_of(gradient, world.rank() + 5), own);
        expect_close(second, expected[i].second[rank], 1e-12, "second gradient of " + what);
      }
    });
  }
}

// The oracle above is autograd's. This one knows no derivatives: it moves each element of each rank's tensor.
TEST(Gradient, IsThatOfFiniteDifferences) {
  constexpr int64_t kSize = 2;
  constexpr double kStep = 1e-5;
  run_ranks(kSize, [&](World& world) {
    for (const auto& one : functions()) {
      const auto own = one.input(world.rank(), kSize).requires_grad_();
      if (own.is_complex()) continue;
      const auto gradient = gradient_of(loss_of(one.on_ranks(world, own), world.rank()), own);
      const at::NoGradGuard no_grad;
      for (int64_t rank = 0; rank < kSize; ++rank) {
        for (int64_t i = 0; i < one.input(rank, kSize).numel(); ++i) {
          const auto total = [&](double step) {
            const auto moved = own.clone();
            if (rank == world.rank()) moved.view(-1)[i] += step;
            const auto loss = loss_of(one.on_ranks(world, moved), world.rank());
            world.all_reduce(loss);
            return loss.item<double>();
          };
          const double slope = (total(kStep) - total(-kStep)) / (2 * kStep);
          if (rank == world.rank()) {
            EXPECT_NEAR(gradient.reshape(-1)[i].item<double>(), slope, 1e-8) << one.name;
          }
        }
      }
    }
  });
}

// Oracle: torch.distributed.nn.functional on three ranks (tests/reference/record_gradient_collectives.py).
TEST(Gradient, IsThatOfPythons) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("gradient_collectives.json")));
  const auto& expected = recorded["cases"];
  ASSERT_EQ(expected.size(), 6u);
  const std::vector<std::pair<const char*, std::function<at::Tensor(Group & group, const at::Tensor& own)>>> losses = {
      {"all_reduce", [](auto& group, auto& own) { return loss_of(gradient::all_reduce(group, own), group.rank()); }},
      {"broadcast", [](auto& group, auto& own) { return loss_of(gradient::broadcast(group, own, 1), group.rank()); }},
      {"all_gather", [](auto& group, auto& own) { return loss_of(gradient::all_gather(group, own), group.rank()); }},
      {"reduce_scatter",
       [](auto& group, auto& own) { return loss_of(gradient::reduce_scatter(group, own), group.rank()); }},
      {"all_to_all", [](auto& group, auto& own) { return loss_of(gradient::all_to_all(group, own), group.rank()); }},
      {"contrastive",
       [](auto& group, auto& own) {
         const auto features = own / own.norm(2, {1}, /*keepdim=*/true);
         const auto all = gradient::all_gather(group, features).flatten(0, 1);
         const auto labels = at::arange(own.size(0)) + group.rank() * own.size(0);
         return at::cross_entropy_loss(features.roll(1, 1).matmul(all.t()) / 0.1, labels);
       }},
  };
  run_ranks(3, [&](World& world) {
    for (const auto& [name, loss_on] : losses) {
      const auto& entry = expected[name][static_cast<size_t>(world.rank())];
      const auto own = numbers({6, 4}, 1.3 * static_cast<double>(world.rank())).requires_grad_();
      const auto loss = loss_on(world, own);
      EXPECT_NEAR(loss.item<double>(), entry["loss"].get<double>(), 1e-12) << name;
      const auto gradient = gradient_of(loss, own).view(-1);
      const auto values = entry["gradient"].get<std::vector<double>>();
      ASSERT_EQ(gradient.numel(), std::ssize(values));
      for (int64_t i = 0; i < gradient.numel(); ++i) {
        EXPECT_NEAR(gradient[i].item<double>(), values[static_cast<size_t>(i)], 1e-12) << name << " " << i;
      }
    }
  });
}

// Each rank writes its loss in another order, with chains of other lengths and branches that do not communicate. The
// tensors differ in size, so collectives that meet another one would fail.
TEST(Gradient, CommunicatesInOneOrderWhateverTheGraph) {
  run_ranks(3, [](World& world) {
    const auto own = numbers({2}, static_cast<double>(world.rank())).requires_grad_();
    auto a = gradient::all_gather(world, own);                  // [3, 2]
    auto b = gradient::all_reduce(world, own.repeat({4}));      // [8]
    auto c = gradient::reduce_scatter(world, own.repeat({6}));  // [4]
    auto d = gradient::all_gather(world, b.narrow(0, 0, 1) * c);
    for (int64_t i = 0; i < 4 * world.rank(); ++i) (world.rank() == 1 ? a : b) = (world.rank() == 1 ? a : b) * 1.0;
    const auto unrelated = (own * 3).sum();
    at::Tensor loss;
    switch (world.rank()) {
      case 0: loss = a.sum() + b.sum() + c.sum() + d.sum() + 0 * unrelated; break;
      case 1: loss = d.sum() + (c.sum() + (b.sum() + a.sum())); break;
      default: loss = (unrelated - unrelated) + (b.sum() + d.sum()) + (a.sum() + c.sum());
    }
    const auto gradient = gradient_of(loss, own);

    Tensors all;
    for (int64_t rank = 0; rank < 3; ++rank) all.push_back(numbers({2}, static_cast<double>(rank)).requires_grad_());
    const auto sum = all[0] + all[1] + all[2];
    const auto of_c = sum.repeat({6}).narrow(0, 0, 4);  // all parts are equal
    const auto total = 3 * (sum.sum() + 4 * sum.sum() + of_c.sum() + 3 * (sum[0] * of_c).sum());
    expect_close(gradient, gradient_of(total, all[static_cast<size_t>(world.rank())]), 1e-12, "gradient");
  });
}

// A rank whose tensor needs no gradient takes part in backward, or the others would wait.
TEST(Gradient, PassesRanksThatNeedNone) {
  run_ranks(3, [](World& world) {
    auto own = numbers({2}, static_cast<double>(world.rank()));
    if (world.rank() == 1) own.requires_grad_();
    for (const auto& result :
         {gradient::all_gather(world, own), gradient::broadcast(world, own, 1), gradient::all_reduce(world, own)}) {
      EXPECT_TRUE(result.requires_grad());
      (result.sum() * (world.rank() + 1)).backward();
    }
    EXPECT_EQ(own.grad().defined(), world.rank() == 1);
    if (world.rank() == 1) expect_close(own.grad(), at::full({2}, 18.0, at::kDouble), 1e-12, "1 + 2 + 3, three times");
  });
}

TEST(Gradient, IsNotAskedForWhereThereIsNone) {
  run_ranks(2, [](World& world) {
    const auto whole = at::arange(4) + 10 * world.rank();
    const auto check = [&](const at::Tensor& own) {
      const auto all = world.all_gather(own.detach());
      const auto expect = [](const at::Tensor& actual, const at::Tensor& expected) {
        EXPECT_FALSE(actual.requires_grad());
        EXPECT_TRUE(at::equal(actual, expected.to(actual.scalar_type()))) << actual << expected;
      };
      expect(gradient::all_gather(world, own), all);
      expect(gradient::all_gather_rows(world, own).rows, all.flatten());
      expect(gradient::all_reduce(world, own), all.sum(0));
      expect(gradient::broadcast(world, own, 1), all[1]);
      expect(gradient::reduce_scatter(world, own), all.sum(0).narrow(0, 2 * world.rank(), 2));
      expect(gradient::all_to_all(world, own), all.narrow(1, 2 * world.rank(), 2).flatten());
      if (world.rank() == 0) {
        EXPECT_FALSE(gradient::send(world, own, 1).requires_grad());
      } else {
        expect(gradient::receive(world, own, 0), all[0]);
      }
    };
    check(whole);
    check(whole.to(at::kByte));
    const at::NoGradGuard no_grad;
    check(whole.to(at::kFloat).requires_grad_());
  });
}

TEST(Gradient, DividesHalfNumbersBeforeItAddsThem) {
  run_ranks(2, [](World& world) {
    const auto own = at::full({2}, 40000.0, at::kHalf).requires_grad_();
    const auto mean = gradient::all_reduce(world, own, ReduceOp::kMean);
    EXPECT_EQ(mean[0].item<float>(), 40000);
    mean.backward(at::full({2}, 40000.0, at::kHalf));
    EXPECT_EQ(own.grad()[0].item<float>(), 40000);
  });
}

TEST(Gradient, OfRowsKnowsWhereThoseOfARankBegin) {
  run_ranks(3, [](World& world) {
    const auto rows = std::array{2, 0, 3}[static_cast<size_t>(world.rank())];
    const auto gathered = gradient::all_gather_rows(world, at::full({rows, 2}, world.rank(), at::kFloat));
    EXPECT_EQ(gathered.first, (std::array{0, 2, 2}[static_cast<size_t>(world.rank())]));
    EXPECT_EQ(gathered.rows.sizes(), (at::IntArrayRef{5, 2}));
    EXPECT_TRUE(at::equal(gathered.rows.select(1, 0).detach(), at::tensor({0.F, 0.F, 2.F, 2.F, 2.F})));
    EXPECT_EQ(gradient::all_gather_rows(world, at::ones({0, 2})).rows.sizes(), (at::IntArrayRef{0, 2}));
    try {
      gradient::all_gather_rows(world, at::ones({rows, world.rank() == 2 ? 4 : 2}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("rank 2 has rows of Float [4] and rank 0 has rows of Float [2]"));
    }
  });
}

/// A layer of a network that is cut between ranks.
at::Tensor layer(const at::Tensor& input, int64_t number) {
  return at::tanh(input.matmul(numbers({3, 3}, static_cast<double>(number))));
}

// Oracle: the whole network in one process. Rank r has layer r.
TEST(Gradient, PassesMessagesBackwards) {
  const auto whole = numbers({2, 3}, 0.4).requires_grad_();
  const auto expected = gradient_of(loss_of(layer(layer(layer(whole, 0), 1), 2), 0), whole);
  run_ranks(3, [&](World& world) {
    const auto input = whole.detach().clone().requires_grad_();
    auto hidden = input;
    if (world.rank() > 0) hidden = gradient::receive(world, at::zeros({2, 3}, at::kDouble), world.rank() - 1);
    hidden = layer(hidden, world.rank()).t().contiguous().t();  // not contiguous
    if (world.rank() < 2) {
      const auto loss = gradient::send(world, hidden, world.rank() + 1);
      EXPECT_EQ(loss.item<double>(), 0);
      loss.backward();
    } else {
      loss_of(hidden, 0).backward();
    }
    if (world.rank() == 0) expect_close(input.grad(), expected, 1e-12, "gradient");
    EXPECT_EQ(input.grad().defined(), world.rank() == 0);
  });
}

// Two ranks send to each other, twice. One sends first, and the other one receives first; so backward fits, too.
TEST(Gradient, OfAnExchangeOfMessagesIsThatOfOneProcess) {
  Tensors inputs = {numbers({3}, 0).requires_grad_(), numbers({3}, 1.3).requires_grad_()};
  const auto total = loss_of(inputs[1] * inputs[0], 0) + loss_of(inputs[0] * inputs[1].exp(), 1);
  const auto expected = torch::autograd::grad({total}, inputs);
  run_ranks(2, [&](World& world) {
    const auto own = inputs[static_cast<size_t>(world.rank())].detach().clone().requires_grad_();
    at::Tensor token, received;
    if (world.rank() == 0) {
      token = gradient::send(world, own, 1);
      received = gradient::receive(world, own, 1);
    } else {
      received = gradient::receive(world, own, 0);
      token = gradient::send(world, own, 0);
    }
    const auto loss = loss_of(received * (world.rank() == 0 ? own : own.exp()), world.rank()) + token;
    expect_close(gradient_of(loss, own), expected[static_cast<size_t>(world.rank())], 1e-12, "gradient");

    const auto again = world.rank() == 0 ? gradient::send(world, own, 1) : gradient::receive(world, own, 0).sum();
    try {
      gradient_of(again, own, /*create_graph=*/true);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), HasSubstr("send and receive give no gradients of gradients"));
    }
  });
}

// Rows {0, 1} and {2, 3}, columns {0, 2} and {1, 3}. Group objects end before backward.
TEST(Gradient, PassesSeveralGroups) {
  Tensors inputs;
  for (int64_t rank = 0; rank < 4; ++rank) inputs.push_back(numbers({2}, static_cast<double>(rank)).requires_grad_());
  auto total = at::zeros({}, at::kDouble);
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto sum = [&](size_t of_row) { return inputs[2 * of_row] + inputs[2 * of_row + 1]; };
    const auto both = at::stack({sum(0), sum(1)});  // of its column
    total = total + loss_of(both * inputs[rank], static_cast<int64_t>(rank));
  }
  const auto expected = torch::autograd::grad({total}, inputs);
  run_ranks(4, [&](World& world) {
    const auto own = inputs[static_cast<size_t>(world.rank())].detach().clone().requires_grad_();
    at::Tensor loss;
    {
      auto row = world.split(world.rank() / 2), column = world.split(world.rank() % 2);
      const auto both = gradient::all_gather(column, gradient::all_reduce(row, own));
      loss = loss_of(both * own, world.rank());
    }
    expect_close(gradient_of(loss, own), expected[static_cast<size_t>(world.rank())], 1e-12, "gradient");
  });
}

TEST(Gradient, RefusesWhatHasNone) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  const auto own = at::ones({3}).requires_grad_();
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"dist::gradient::all_reduce: a smallest or largest", [&] { gradient::all_reduce(world, own, ReduceOp::kMax); }},
      {"reduce_scatter: a smallest or largest", [&] { gradient::reduce_scatter(world, own, ReduceOp::kMin); }},
      {"dist::gradient::all_gather: its tensor is undefined", [&] { gradient::all_gather(world, {}); }},
      {"all_gather_rows: its tensor is undefined", [&] { gradient::all_gather_rows(world, {}); }},
      {"all_gather_rows: its tensor has no rows", [&] { gradient::all_gather_rows(world, own.sum()); }},
      {"reduce_scatter: its tensor is undefined", [&] { gradient::reduce_scatter(world, {}); }},
      {"send: its tensor is undefined", [&] { std::ignore = gradient::send(world, {}, 0); }},
      {"reduce_scatter: a tensor of [] cannot be divided", [&] { gradient::reduce_scatter(world, own.sum()); }},
      {"all_to_all: ", [&] { gradient::all_to_all(world, own, {.input = {2}, .output = {2}}); }},
      {"send: rank 0 of this group of 1 is this rank itself", [&] { std::ignore = gradient::send(world, own, 0); }},
  };
  for (const auto& [message, call] : calls) {
    try {
      call();
      ADD_FAILURE() << message << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
  world.shutdown();
}

TEST(Gradient, NeedsItsWorld) {
  const auto own = at::ones({3}).requires_grad_();
  at::Tensor first, second;
  const auto expect_refusal = [](const at::Tensor& loss, const char* message) {
    try {
      loss.backward();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  {
    World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
    first = gradient::all_gather(world, own).sum();
    second = gradient::all_gather(world, own).sum();
    World moved(std::move(world));
    gradient::all_gather(moved, own).sum().backward();
    EXPECT_TRUE(at::equal(own.grad(), at::ones({3})));
    moved.shutdown();
    expect_refusal(first, "this World has been shut down");
  }
  expect_refusal(second, "the backward of dist::gradient::all_gather: the World of its group has ended");
}

// What one rank leaves out of its backward, the others wait for; the error says so long before the timeout.
TEST(Gradient, ARankThatLeavesABackwardOutIsNamed) {
  std::mutex mutex;
  std::vector<std::string> messages;
  EXPECT_THROW(run_ranks(
                   2,
                   [&](World& world) {
                     const auto own = at::ones({3}).requires_grad_();
                     const auto all = gradient::all_gather(world, own);
                     try {
                       if (world.rank() == 0) all.sum().backward();
                       world.all_gather(at::zeros({2}));
                     } catch (const Error& error) {
                       const std::lock_guard lock(mutex);
                       messages.emplace_back(error.what());
                       throw;
                     }
                   },
                   std::chrono::seconds(20)),
               Error);
  ASSERT_EQ(messages.size(), 2u);
  for (const auto& message : messages) {
    EXPECT_THAT(message, AllOf(HasSubstr("rank 0 is at the backward of dist::gradient::all_gather (collective 2)"),
                               HasSubstr("rank 1 is at all_gather of 2 Float (collective 2)")));
  }
}

}  // namespace
}  // namespace yoke::dist
