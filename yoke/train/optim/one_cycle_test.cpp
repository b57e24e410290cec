#include "yoke/train/optim/one_cycle.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "yoke/base/error.h"

namespace yoke::train {
namespace {

// Oracle: the rates of PyTorch's scheduler (tests/reference/record_one_cycle.py). A cosine may differ by a bit or two
// between libm versions; a wrong phase or factor differs in the first digits.
TEST(OneCycle, EqualsPyTorch) {
  const auto recorded = nlohmann::json::parse(std::ifstream(test::reference("one_cycle.json")));
  ASSERT_GT(recorded["cases"].size(), 10u);
  size_t num_momenta = 0;
  for (const auto& entry : recorded["cases"]) {
    const OneCycleOptions options{.total_steps = entry["total_steps"],
                                  .max_lr = entry["max_lr"],
                                  .pct_start = entry["pct_start"],
                                  .anneal = entry["anneal_strategy"] == "cos" ? Anneal::kCos : Anneal::kLinear,
                                  .div_factor = entry["div_factor"],
                                  .final_div_factor = entry["final_div_factor"]};
    ASSERT_EQ(entry["lr"].size(), static_cast<size_t>(options.total_steps));
    for (int64_t step = 0; step < options.total_steps; ++step) {
      const double expected = entry["lr"][static_cast<size_t>(step)];
      const double rounding = options.anneal == Anneal::kCos ? 1e-15 * options.max_lr : 0;
      ASSERT_NEAR(one_cycle_lr(step, options), expected, rounding) << "step " << step << " of " << entry.dump(-1);
      if (entry.contains("momentum")) {
        ASSERT_NEAR(one_cycle_momentum(step, options), entry["momentum"][static_cast<size_t>(step)].get<double>(),
                    1e-15);
        ++num_momenta;
      }
    }
  }
  EXPECT_GT(num_momenta, 0u);
}

TEST(OneCycle, ARiseOfOneStepIsThePeak) {
  const OneCycleOptions options{.total_steps = 10, .max_lr = 0.5, .pct_start = 0.1};
  EXPECT_EQ(one_cycle_lr(0, options), 0.5);
  EXPECT_LT(one_cycle_lr(1, options), 0.5);
}

TEST(OneCycle, ShortSchedulesHaveRates) {
  for (int64_t total = 1; total < 12; ++total) {
    for (int64_t step = 0; step < total; ++step) {
      const double lr = one_cycle_lr(step, {.total_steps = total, .max_lr = 1});
      EXPECT_TRUE(lr > 0 && lr <= 1) << lr << " at step " << step << " of " << total;
    }
  }
}

TEST(OneCycle, RefusesStepsOutsideIt) {
  const OneCycleOptions options{.total_steps = 10, .max_lr = 1};
  EXPECT_THROW(one_cycle_lr(10, options), Error);
  EXPECT_THROW(one_cycle_lr(-1, options), Error);
  EXPECT_THROW(one_cycle_lr(0, {.total_steps = 10, .max_lr = 1, .pct_start = 1.5}), Error);
  EXPECT_THROW(one_cycle_lr(0, {.total_steps = 10, .max_lr = 1, .div_factor = 0}), Error);
}

}  // namespace
}  // namespace yoke::train
