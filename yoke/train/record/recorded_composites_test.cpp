// Operators that libtorch makes of others: those that write in silence, and those that read values on the CPU.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argwhere.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/combinations.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/narrow.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/quantile.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/tensor_split.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/unsafe_split.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>

#include <map>

#include "yoke/train/record/recorded.h"
#include "yoke/train/record/small_step_test.h"
#include "yoke/train/seed.h"

namespace yoke::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace nn = torch::nn;

struct InferenceOr {
  const char* name;
  bool is_inference = false;
};

/// What a step gives and leaves in ten calls, under InferenceMode or no_grad.
std::vector<at::Tensor> in_ten_calls(bool is_inference, const std::function<at::Tensor(const at::Tensor&)>& step,
                                     const std::function<std::vector<at::Tensor>()>& left) {
  const c10::InferenceMode inference(is_inference);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(step(at::arange(48, at::kFloat).view({4, 3, 4}).mul(0.1 + i).sin()).clone());
    for (const auto& tensor : left()) all.push_back(tensor.clone());
  }
  return all;
}

struct Stateful {
  const char* name;
  std::function<std::pair<std::function<at::Tensor(const at::Tensor&)>, std::function<std::vector<at::Tensor>()>>()>
      make;
};

template <class Norm>
auto norm_step(Norm norm) {
  return [norm] {
    auto fresh = Norm(std::dynamic_pointer_cast<typename Norm::ContainedType>(norm->clone()));
    return std::pair<std::function<at::Tensor(const at::Tensor&)>, std::function<std::vector<at::Tensor>()>>(
        [fresh](const at::Tensor& x) mutable { return fresh(x); }, [fresh] { return fresh->buffers(); });
  };
}

class RecordedComposites : public ::testing::TestWithParam<InferenceOr> {};

// Under InferenceMode, operators that autograd takes apart otherwise reach a recording whole. A comparison must restore
// what they write.
TEST_P(RecordedComposites, LeaveTheStateOfTheStep) {
  const std::vector<Stateful> all = {
      {"batch norm", norm_step(nn::BatchNorm1d(3))},
      {"instance norm", norm_step(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).track_running_stats(true)))},
      {"an embedding with a largest norm",
       [] {
         seed({.seed = 3});
         nn::Embedding table(nn::EmbeddingOptions(3, 4).max_norm(0.5));
         return std::pair<std::function<at::Tensor(const at::Tensor&)>, std::function<std::vector<at::Tensor>()>>(
             [table](const at::Tensor& x) mutable { return table(x.argmax(1)); },
             [table] { return std::vector<at::Tensor>{table->weight}; });
       }},
      {"a running sum",
       [] {
         const auto sum = at::zeros({4});
         return std::pair<std::function<at::Tensor(const at::Tensor&)>, std::function<std::vector<at::Tensor>()>>(
             [sum](const at::Tensor& x) {
               return sum.mul_(0.9).add_(x.mean({0, 1})) * 2;
             },
             [sum] { return std::vector<at::Tensor>{sum}; });
       }},
      {"a counter that is assigned",
       [] {
         const auto sum = at::zeros({4, 3, 4});
         return std::pair<std::function<at::Tensor(const at::Tensor&)>, std::function<std::vector<at::Tensor>()>>(
             [sum](const at::Tensor& x) {
               at::add_out(const_cast<at::Tensor&>(sum), sum, x);  // NOLINT(*-const-cast)
               return sum.index({0});
             },
             [sum] { return std::vector<at::Tensor>{sum}; });
       }},
  };
  for (const auto& [name, make] : all) {
    const auto [plain, plain_left] = make();
    const auto expected = in_ten_calls(GetParam().is_inference, plain, plain_left);
    for (const bool check : {true, false}) {
      Small small({.check = check});
      const auto [step, left] = make();
      Recorded recorded(step, small.options);
      const auto found = in_ten_calls(
          GetParam().is_inference, [&](const at::Tensor& x) { return recorded(x); }, left);
      EXPECT_THAT(recorded.why_not(), IsEmpty()) << name;
      EXPECT_EQ(recorded.num_replays(), 7) << name;
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) ASSERT_TRUE(same_bits(found[i], expected[i])) << name << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RecordedComposites,
                         ::testing::Values(InferenceOr{"NoGrad"}, InferenceOr{"InferenceMode", true}),
                         [](const auto& info) { return info.param.name; });

// A replay would take the number of a tensor that the recording has read.
TEST(RecordedValues, RefusesOperatorsThatReadThem) {
  const auto counts = [](const at::Tensor& x) { return x.select(1, 0).mul(0).add(2).to(at::kLong); };  // [4] of 2
  const auto lengths = [counts](const at::Tensor& x) { return counts(x); };
  const std::vector<at::Tensor> weights = {at::randn({20, 3}), at::randn({20, 5}), at::randn({20}), at::randn({20})};
  const std::vector<at::Tensor> gru = {at::randn({15, 3}), at::randn({15, 5}), at::randn({15}), at::randn({15})};
  const std::vector<at::Tensor> rnn = {at::randn({5, 3}), at::randn({5, 5}), at::randn({5}), at::randn({5})};
  const auto state = at::zeros({1, 2, 5});
  const auto packed = [](const at::Tensor& x) { return x.select(1, 0).slice(0, 0, 2).mul(0).add(2).to(at::kLong); };
  const std::map<std::string, std::function<at::Tensor(const at::Tensor& x)>> all = {
      {"tensor_split", [&](const at::Tensor& x) { return x.tensor_split(counts(x).slice(0, 0, 1))[0].sum(); }},
      {"ctc_loss",
       [&](const at::Tensor& x) {
         return at::ctc_loss(x.unsqueeze(0).expand({5, 4, 3}).log_softmax(2), at::ones({4, 2}, at::kLong), lengths(x),
                             lengths(x));
       }},
      {"_pad_packed_sequence",
       [&](const at::Tensor& x) { return std::get<0>(at::_pad_packed_sequence(x, packed(x), false, 0.0, 2)); }},
      {"lstm",
       [&](const at::Tensor& x) {
         return std::get<0>(at::lstm(x, packed(x), {state, state}, weights, true, 1, 0.0, false, false));
       }},
      {"gru",
       [&](const at::Tensor& x) { return std::get<0>(at::gru(x, packed(x), state, gru, true, 1, 0.0, false, false)); }},
      {"rnn_tanh",
       [&](const at::Tensor& x) {
         return std::get<0>(at::rnn_tanh(x, packed(x), state, rnn, true, 1, 0.0, false, false));
       }},
      {"repeat_interleave", [&](const at::Tensor& x) { return at::repeat_interleave(x, counts(x), 0); }},
      {"bincount", [&](const at::Tensor& x) { return at::bincount(counts(x)); }},
      {"unique_dim", [&](const at::Tensor& x) { return std::get<0>(at::unique_dim(x, 0)); }},
      {"unique_consecutive", [&](const at::Tensor& x) { return std::get<0>(at::unique_consecutive(x)); }},
      {"masked_select", [&](const at::Tensor& x) { return at::masked_select(x, x > 0); }},
      {"nonzero", [&](const at::Tensor& x) { return at::nonzero(x); }},
      {"argwhere", [&](const at::Tensor& x) { return at::argwhere(x); }},
      {"where", [&](const at::Tensor& x) { return at::where(x > 0)[0]; }},
      {"index", [&](const at::Tensor& x) { return x.index({x > 0}); }},
      {"narrow", [&](const at::Tensor& x) { return at::narrow(x, 0, counts(x)[0], 1); }},
      {"one_hot", [&](const at::Tensor& x) { return at::one_hot(counts(x)); }},
      {"quantile", [&](const at::Tensor& x) { return at::quantile(x, x[0].sigmoid()); }},
      {"item", [&](const at::Tensor& x) { return x * counts(x)[0].item<double>(); }},
      {"is_nonzero", [&](const at::Tensor& x) { return x[0][0].is_nonzero() ? x : x * 2; }},
      {"Scalar", [&](const at::Tensor& x) { return x + counts(x)[0].item(); }},
  };
  for (const bool is_inference : {false, true}) {
    const c10::InferenceMode inference(is_inference);
    for (const auto& [name, step] : all) {
      Small small;
      EXPECT_THAT(small.why_not(step), HasSubstr("aten::")) << name << (is_inference ? " in InferenceMode" : "");
      EXPECT_THAT(small.warnings, ElementsAre(HasSubstr("without recording"))) << name;
    }
  }
}

// An operator of the program may write, too, and say nothing of it.
at::Tensor count(const at::Tensor& x, const at::Tensor& seen) {
  seen.add_(x.sum());
  return x + seen;
}

TORCH_LIBRARY(yoke_recorded_test, library) {
  library.def("whole(Tensor x, Tensor seen) -> Tensor");
  library.impl("whole", c10::DispatchKey::CPU, &count);
  library.def("made_of_others(Tensor x, Tensor seen) -> Tensor", &count);
}

TEST(RecordedWrites, OfTheProgramsOperatorsAreFound) {
  for (const char* name : {"yoke_recorded_test::whole", "yoke_recorded_test::made_of_others"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<decltype(count)>();
    for (const bool is_inference : {false, true}) {
      const c10::InferenceMode inference(is_inference);
      Small small;
      const auto seen = at::zeros({}), expected = at::zeros({});
      Recorded recorded([&](const at::Tensor& x) { return op.call(x, seen); }, small.options);
      for (int i = 0; i < 12; ++i) {
        const auto x = at::randn({3});
        EXPECT_TRUE(same_bits(recorded(x), count(x, expected))) << name;
        EXPECT_TRUE(same_bits(seen, expected)) << name << " in call " << i;
      }
      EXPECT_EQ(recorded.num_replays(), 9) << recorded.why_not();
    }
  }
}

// An operator that gives nothing may throw.
TEST(RecordedValues, AreCheckedInReplays) {
  Small small({.check = false});
  Recorded recorded([](const at::Tensor& x) { return at::linalg_cholesky(x); }, small.options);
  for (int i = 0; i < 6; ++i) recorded(at::eye(3) * (1 + i));
  EXPECT_EQ(recorded.num_replays(), 3);
  EXPECT_THROW(recorded(at::eye(3) * -1), c10::Error);
}

// These look alike, and a replay reads their numbers anew.
TEST(RecordedValues, ReplaysOperatorsThatReadThemThemselves) {
  const auto table = at::randn({6, 3});
  const std::map<std::string, std::function<at::Tensor(const at::Tensor& x)>> all = {
      {"histc", [](const at::Tensor& x) { return at::histc(x, 5); }},
      {"linspace", [](const at::Tensor& x) { return at::linspace(x[0][0], x[1][1], 7); }},
      {"bucketize", [](const at::Tensor& x) { return at::bucketize(x, std::get<0>(x.select(1, 0).sort())); }},
      {"fill_", [](const at::Tensor& x) { return at::zeros({3}).fill_(x[0][0]); }},
      {"masked_fill", [](const at::Tensor& x) { return x.masked_fill(x > 0, x[0][0]); }},
      {"index_fill", [](const at::Tensor& x) { return x.index_fill(0, x.argmax(0), x[0][0]); }},
      {"index_put", [](const at::Tensor& x) { return at::index_put(x, {x > 0}, x[0][0]); }},
      {"masked_scatter", [](const at::Tensor& x) { return x.masked_scatter(x > 0, x * 2); }},
      {"where", [](const at::Tensor& x) { return at::where(x > 0, x, 0.5); }},
      {"index", [](const at::Tensor& x) { return x.index({x.argmax(0)}); }},
      {"pow", [](const at::Tensor& x) { return x.abs().pow(x[0][0]); }},
      {"unsafe_split", [](const at::Tensor& x) { return at::unsafe_split(x, 2)[1] + 1; }},
      {"tensor_split", [](const at::Tensor& x) { return x.tensor_split(3)[0] + 1; }},
      {"pad_sequence",
       [](const at::Tensor& x) {
         return at::pad_sequence({x, x.slice(0, 1)});
       }},
      {"combinations", [](const at::Tensor& x) { return at::combinations(x.select(1, 0)); }},
      {"multinomial", [](const at::Tensor& x) { return x.sigmoid().multinomial(2); }},
      {"bernoulli", [](const at::Tensor& x) { return x.sigmoid().bernoulli(); }},
      {"embedding_bag",
       [table](const at::Tensor& x) {
         const auto offsets = at::cat({at::zeros({1}, at::kLong), x.select(1, 0).gt(0).sum().clamp_max(3).view({1})});
         return std::get<0>(at::embedding_bag(table, x.argmax(1), offsets));
       }},
  };
  for (const auto& [name, step] : all) {
    for (const bool is_inference : {false, true}) {
      const c10::InferenceMode inference(is_inference);
      Small small;
      Recorded recorded(step, small.options);
      for (int i = 0; i < 12; ++i) {
        seed({.seed = static_cast<uint64_t>(i)});
        const auto x = at::randn({4, 3});
        seed({.seed = 100 + static_cast<uint64_t>(i)});
        const auto found = recorded(x);
        seed({.seed = 100 + static_cast<uint64_t>(i)});
        EXPECT_TRUE(same_bits(found, step(x))) << name << " in call " << i;
      }
      EXPECT_THAT(recorded.why_not(), IsEmpty()) << name;
      EXPECT_EQ(recorded.num_replays(), 9) << name;
    }
  }
}

}  // namespace
}  // namespace yoke::train
