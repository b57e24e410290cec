#include "yoke/train/watch/step_end.h"

#include <gtest/gtest.h>

#include <thread>

#include "fakes/run_ranks.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/watch/detail/step_counter.h"

namespace yoke::train {
namespace {

struct Counts {
  int64_t num_steps = 0, last = -1;
  std::thread::id thread;
};

class Counting : public StepObserver {
 public:
  explicit Counting(Counts& counts) : counts_(&counts) {}
  void on_step(int64_t step) override { *counts_ = {counts_->num_steps + 1, step, std::this_thread::get_id()}; }

 private:
  Counts* counts_;
};

TEST(StepEnd, ComesAfterEachStepOfAnOptimizerOnTheThreadThatCallsIt) {
  static Counts counts;  // the observer lives as long as the process
  add_step_observer(std::make_unique<Counting>(counts));
  auto weight = at::ones({2}).requires_grad_(true);
  Sgd optimizer(NamedTensors{{"weight", weight}}, {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    weight.sum().backward();
    EXPECT_EQ(counts.num_steps, i);
    optimizer.step();
    EXPECT_EQ(counts.num_steps, i + 1);
    EXPECT_EQ(counts.last, i);
    EXPECT_EQ(counts.thread, std::this_thread::get_id());
  }
}

class StepCounterRule : public testing::Test {
 protected:
  std::optional<int64_t> step(char optimizer) {
    return counter_.end_of(&objects_[static_cast<size_t>(optimizer - 'a')]);
  }

  detail::StepCounter counter_;
  char objects_[3] = {};
};

TEST_F(StepCounterRule, CountsTheStepsOfTheFirstOptimizer) {
  EXPECT_EQ(step('a'), 0);
  EXPECT_EQ(step('b'), std::nullopt);
  EXPECT_EQ(step('c'), std::nullopt);
  EXPECT_EQ(step('a'), 1);
  EXPECT_EQ(step('b'), std::nullopt);
  EXPECT_EQ(step('a'), 2);
  EXPECT_EQ(step('a'), 3);
}

TEST_F(StepCounterRule, FollowsAnotherOptimizerWhenTheFirstIsNoLongerUsed) {
  EXPECT_EQ(step('a'), 0);
  EXPECT_EQ(step('b'), std::nullopt);
  EXPECT_EQ(step('b'), 1);
  EXPECT_EQ(step('b'), 2);
}

}  // namespace
}  // namespace yoke::train
