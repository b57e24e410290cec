#include "yoke/train/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/train/optim/plateau.h"

namespace yoke::train {
namespace {

using nlohmann::json;

json recorded() { return json::parse(std::ifstream(test::reference("schedules.json"))); }

// Oracle: the rates of PyTorch's schedulers (tests/reference/record_optimizers.py). The schedulers compute each rate
// from the previous one, so the last digits differ.
TEST(Schedules, EqualPyTorchs) {
  const double lr = 0.5;
  const std::map<std::string, Schedule> schedules{
      {"constant", constant_lr({.lr = lr, .factor = 0.25, .num_steps = 10})},
      {"linear up", linear_lr({.lr = lr, .start_factor = 0.01, .num_steps = 20})},
      {"linear down", linear_lr({.lr = lr, .start_factor = 1, .end_factor = 0.1, .num_steps = 40})},
      {"polynomial", polynomial_lr({.lr = lr, .power = 2, .num_steps = 40})},
      {"polynomial 1", polynomial_lr({.lr = lr, .num_steps = 45})},
      {"exponential", exponential_lr({.lr = lr, .gamma = 0.9})},
      {"step", step_lr({.lr = lr, .step_size = 7, .gamma = 0.3})},
      {"multi step", multi_step_lr({.lr = lr, .milestones = {20, 5, 20, 33}, .gamma = 0.2})},
      {"cosine", cosine_annealing_lr({.lr = lr, .min_lr = 0.01, .num_steps = 50})},
      {"cosine and on", cosine_annealing_lr({.lr = lr, .num_steps = 20})},
      {"warm restarts", cosine_annealing_warm_restarts({.lr = lr, .first_num_steps = 10})},
      {"warm restarts, growing",
       cosine_annealing_warm_restarts({.lr = lr, .min_lr = 0.02, .first_num_steps = 5, .growth = 2})},
      {"one cycle", one_cycle_lr({.total_steps = 51, .max_lr = lr})},
      {"sequence", sequence({{10, linear_lr({.lr = lr, .start_factor = 0.1, .num_steps = 10})},
                             {30, cosine_annealing_lr({.lr = lr, .num_steps = 30})},
                             {0, constant_lr({.lr = lr, .factor = 0.125, .num_steps = 1000})}})},
      {"product", product({constant_lr({.lr = lr, .factor = 0.1, .num_steps = 20}), exponential_lr({.gamma = 0.9})})},
  };
  const auto file = recorded();
  ASSERT_EQ(file["schedules"].size(), schedules.size());
  for (const auto& [name, rates] : file["schedules"].items()) {
    ASSERT_TRUE(schedules.contains(name)) << name;
    ASSERT_EQ(rates.size(), 50u);
    for (size_t step = 0; step < rates.size(); ++step) {
      EXPECT_NEAR(schedules.at(name)(static_cast<int64_t>(step)), rates[step].get<double>(), 1e-12 * lr)
          << name << " at step " << step;
    }
  }
}

TEST(Schedules, ArePureFunctions) {
  const auto schedule = sequence({{3, linear_lr({.start_factor = 0.1, .num_steps = 3})},
                                  {5, cosine_annealing_warm_restarts({.first_num_steps = 2, .growth = 2})},
                                  {1, exponential_lr({.gamma = 0.5})}});
  std::vector<double> forwards;
  for (int64_t step = 0; step < 12; ++step) forwards.push_back(schedule(step));
  for (int64_t step = 11; step >= 0; --step) EXPECT_EQ(schedule(step), forwards[static_cast<size_t>(step)]);
  EXPECT_EQ(schedule(3), 1);    // the second schedule counts from 0
  EXPECT_EQ(schedule(9), 0.5);  // the third schedule counts from 0 too, and continues after its end
  EXPECT_EQ(schedule(11), 0.125);
}

TEST(Schedules, RestartsEndWhereverTheyAreAsked) {
  const auto growing = cosine_annealing_warm_restarts({.first_num_steps = 2, .growth = int64_t{1} << 62});
  EXPECT_DOUBLE_EQ(growing(1), 0.5);
  EXPECT_EQ(growing(2), 1);
  EXPECT_LE(growing(std::numeric_limits<int64_t>::max()), 1);
}

TEST(Schedules, RefuseOptionsByName) {
  using ::testing::HasSubstr;
  EXPECT_THAT(test::message_of([] { constant_lr({.factor = 2}); }), HasSubstr("constant_lr: factor"));
  EXPECT_THAT(test::message_of([] { linear_lr({.start_factor = -1}); }), HasSubstr("linear_lr: start_factor"));
  EXPECT_THAT(test::message_of([] { linear_lr({.num_steps = 0}); }), HasSubstr("linear_lr: num_steps"));
  EXPECT_THAT(test::message_of([] { polynomial_lr({.power = NAN}); }), HasSubstr("polynomial_lr: power"));
  EXPECT_THAT(test::message_of([] { exponential_lr({}); }), HasSubstr("exponential_lr: gamma"));
  EXPECT_THAT(test::message_of([] { step_lr({}); }), HasSubstr("step_lr: step_size"));
  EXPECT_THAT(test::message_of([] { multi_step_lr({.gamma = -1}); }), HasSubstr("multi_step_lr: gamma"));
  EXPECT_THAT(test::message_of([] { cosine_annealing_lr({}); }), HasSubstr("cosine_annealing_lr: num_steps"));
  EXPECT_THAT(test::message_of([] { cosine_annealing_lr({.lr = -1, .num_steps = 1}); }), HasSubstr("lr must be"));
  EXPECT_THAT(test::message_of([] { cosine_annealing_warm_restarts({.first_num_steps = 1, .growth = 0}); }),
              HasSubstr("growth"));
  EXPECT_THAT(test::message_of([] { sequence({}); }), HasSubstr("sequence: there must be"));
  EXPECT_THAT(test::message_of([] { product({Schedule()}); }), HasSubstr("product: a schedule is empty"));
  EXPECT_THAT(test::message_of([] { linear_lr({})(-1); }), HasSubstr("linear_lr: step -1"));
}

double metric_of(int i) { return i < 10 ? 1.0 / (i + 1) : 0.1 + 0.01 * std::sin(i); }

PlateauOptions plateau_options(const json& o) {
  PlateauOptions options{.lr = 0.5};
  if (o.value("mode", "min") == "max") options.better = Better::kHigher;
  if (o.value("threshold_mode", "rel") == "abs") options.threshold_mode = Threshold::kAbsolute;
  options.factor = o.value("factor", options.factor);
  options.patience = o.value("patience", options.patience);
  options.threshold = o.value("threshold", options.threshold);
  options.cooldown = o.value("cooldown", options.cooldown);
  options.min_lr = o.value("min_lr", options.min_lr);
  options.eps = o.value("eps", options.eps);
  return options;
}

TEST(Plateau, EqualsPyTorchs) {
  const auto file = recorded();
  ASSERT_EQ(file["plateau"].size(), 4u);
  for (const auto& entry : file["plateau"]) {
    ReduceOnPlateau plateau(plateau_options(entry["options"]));
    double before = plateau.lr();
    for (int i = 0; i < 50; ++i) {
      const bool is_reduced = plateau.observe(metric_of(i));
      EXPECT_EQ(plateau.lr(), entry["lr"][static_cast<size_t>(i)].get<double>()) << entry["options"] << " at " << i;
      EXPECT_EQ(is_reduced, plateau.lr() != before);
      before = plateau.lr();
    }
    EXPECT_LT(plateau.lr(), 0.5) << entry["options"] << ": the record tests nothing";
  }
}

// Oracle: an uninterrupted training. Other trainings are interrupted, each after a different step.
TEST(Plateau, ResumesFromItsState) {
  const PlateauOptions options{.lr = 0.5, .factor = 0.5, .patience = 2, .cooldown = 3};
  for (int stop = 0; stop < 30; ++stop) {
    ReduceOnPlateau whole(options), first(options), second(options);
    for (int i = 0; i < stop; ++i) first.observe(metric_of(i));
    second.load_state_dict(first.state_dict());
    for (int i = 0; i < 30; ++i) {
      whole.observe(metric_of(i));
      if (i >= stop) second.observe(metric_of(i));
    }
    EXPECT_EQ(second.lr(), whole.lr()) << "stopped at " << stop;
  }
  ReduceOnPlateau plateau(options);
  auto state = plateau.state_dict();
  state.erase("best");
  EXPECT_THROW(plateau.load_state_dict(state), Error);
  state = plateau.state_dict();
  state["other"] = state["best"];
  EXPECT_THROW(plateau.load_state_dict(state), Error);
}

TEST(Plateau, TakesNanForNoImprovement) {
  ReduceOnPlateau plateau({.patience = 1});
  EXPECT_FALSE(plateau.observe(NAN));
  EXPECT_TRUE(plateau.observe(NAN));
}

}  // namespace
}  // namespace yoke::train
