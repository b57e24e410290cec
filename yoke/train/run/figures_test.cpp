#include "yoke/train/run/detail/figures.h"

#include <ATen/ops/scalar_tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"

namespace yoke::train {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Figures, TheFirstDifferenceIsDescribed) {
  const LogCounts both = {{"loss", 12}, {"accuracy", 1}};
  EXPECT_EQ(describe_difference({both}), std::nullopt);
  EXPECT_EQ(describe_difference({both, both, both}), std::nullopt);
  EXPECT_THAT(describe_difference({both, {{"loss", 12}}}).value_or(""),
              HasSubstr("rank 0 has logged 'accuracy' once, and rank 1 never."));
  EXPECT_THAT(describe_difference({{}, {}, both}).value_or(""),
              HasSubstr("rank 0 has logged 'accuracy' never, and rank 2 once."));
  EXPECT_THAT(describe_difference({both, {{"loss", 11}, {"accuracy", 1}}}).value_or(""),
              HasSubstr("rank 0 has logged 'loss' 12 times, and rank 1 11 times."));
}

TEST(Figures, ColumnsOfTheFilesAreNoNames) {
  fakes::run_ranks(1, [](dist::World& world) {
    Figures figures(world);
    for (const auto* name :
         {"", "a,b", "a/b", "a\"b", "a\nb", "epoch", "step", "time", "samples_per_second", "seconds"}) {
      EXPECT_THAT(message_of([&] { figures.add(name, at::scalar_tensor(1), 1); }),
                  HasSubstr("cannot be the name of a figure"))
          << name;
    }
    EXPECT_THAT(figures.names(), ElementsAre());
  });
}

at::Tensor figure_of(double value) { return at::scalar_tensor(value, at::kDouble); }

// Ranks need not log in the same order. A figure is never added to another one that has the same position.
TEST(Figures, AreMeansByName) {
  fakes::run_ranks(2, [](dist::World& world) {
    Figures figures(world);
    const double rank = static_cast<double>(world.rank());
    for (const auto* name : {world.rank() == 0 ? "a" : "b", world.rank() == 0 ? "b" : "a"}) {
      figures.add(name, figure_of((*name == 'a' ? 10 : 100) + rank), 1);
    }
    figures.add("rare", figure_of(7), world.rank());  // rank 0 has no value
    EXPECT_EQ(figures.difference(), std::nullopt);
    auto means = figures.read();
    std::ranges::sort(means);
    EXPECT_THAT(means, ElementsAre(Pair("a", 10.5), Pair("b", 100.5), Pair("rare", 7)));
    figures.reset();
    EXPECT_THAT(figures.read(), ElementsAre());
    if (world.rank() == 1) figures.add("b", figure_of(1), 1);
    EXPECT_THAT(figures.difference().value_or(""), HasSubstr("rank 0 has logged 'b' never, and rank 1 once."));
  });
}

TEST(Figures, TheFirstValueThatIsNotFiniteIsOfARankAndAStep) {
  const auto found = [](const std::map<int64_t, NotFinite>& of_ranks, int64_t num_ranks) {
    const auto first = find_first_not_finite(of_ranks, num_ranks);
    EXPECT_EQ(first.is_of_some, first.text.find(" alone: ") != std::string::npos) << first.text;
    return first.text;
  };
  EXPECT_EQ(found({}, 3), "");
  EXPECT_EQ(found({{0, {"loss", 7}}}, 1), "the first was loss in step 7");
  EXPECT_EQ(found({{0, {"loss", 8}}, {1, {"loss", 8}}, {2, {"loss", 7}}}, 3),
            "the first was loss in step 7, on rank 2 alone: look at its batch");
  EXPECT_EQ(found({{0, {"loss", 7}}, {1, {"loss", 8}}, {2, {"loss", 7}}}, 3),
            "the first was loss in step 7, on ranks 0, 2 alone: look at their batches");
  EXPECT_EQ(found({{0, {"loss", 7}}, {1, {"loss", 7}}}, 2), "the first was loss in step 7, on all ranks");
}

TEST(Figures, TheFirstValueThatIsNotFiniteIsRemembered) {
  fakes::run_ranks(3, [](dist::World& world) {
    const double bad = std::nan("");
    const auto first = [&](const Figures& figures) {
      return figures.first_not_finite(world.all_gather_text(figures.not_finite())).text;
    };
    const auto none = figure_of(1);
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      Figures figures(world);
      figures.add("loss", none.to(type), 1, 3);
      figures.add("count", at::scalar_tensor(4, at::kLong), 1, 3);
      figures.add("empty", figure_of(bad), 0, 3);  // a rank without a value
      EXPECT_EQ(first(figures), "");
      for (const int64_t step : {4, 5}) {
        const bool is_bad = step == 5 || world.rank() == 1;
        figures.add("loss", figure_of(is_bad ? HUGE_VAL : 1).to(type), 1, step);
      }
      EXPECT_EQ(first(figures), "the first was loss in step 4, on rank 1 alone: look at its batch") << type;
      Figures resumed(world);
      resumed.load_own_state_dict(figures.own_state_dict());
      resumed.add("loss", figure_of(bad), 1, 6);
      EXPECT_EQ(first(resumed), "") << "it was before";
      figures.reset();
      EXPECT_EQ(first(figures), "");
    }
  });
}

// A checkpoint is saved although ranks differ, since the work until then is worth it. Each name keeps its own values.
TEST(Figures, AStateHasTheFiguresOfAllRanks) {
  fakes::run_ranks(2, [](dist::World& world) {
    Figures figures(world);
    figures.add("both", figure_of(static_cast<double>(world.rank())), 1);
    figures.add(world.rank() == 0 ? "first" : "second", figure_of(5), 1);
    const auto state = figures.state_dict();
    EXPECT_EQ(state.size(), 3u);
    Figures resumed(world);
    resumed.load_state_dict(state);
    EXPECT_EQ(resumed.difference(), std::nullopt) << "this process has logged nothing yet";
    resumed.add("second", figure_of(6), 1);
    EXPECT_THAT(resumed.read(), ElementsAre(Pair("second", 17. / 3), Pair("both", 0.5), Pair("first", 5)));
  });
}

}  // namespace
}  // namespace yoke::train
