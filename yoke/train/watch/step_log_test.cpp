#include "yoke/train/watch/detail/step_log.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train::detail {
namespace {

class StepLogTest : public testing::Test {
 protected:
  /// Returns the file's content without the times.
  std::string lines() const {
    return std::regex_replace(read_file(path_), std::regex(R"("time": [0-9]{10}\.[0-9]{3},)"), "T");
  }
  static at::Tensor value(double number) { return at::full({}, number, at::kFloat); }

  const test::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path("steps.jsonl");
};

TEST_F(StepLogTest, ALineHasTheValuesOfAStep) {
  {
    StepLog log(path_, {0, 1});
    auto loss = at::full({1}, 0.5, at::kBFloat16);
    log.add({0, 1}, "loss", loss);
    loss.fill_(7);  // a change after adding must not count
    log.add({0, 1}, "l\"r", at::full({}, 0.1, at::kDouble));
    log.add({1, 1}, "loss", value(0.7));
    EXPECT_EQ(lines(), "") << "nothing has been read from the device";
    log.add({1, 1}, "loss", value(std::numeric_limits<double>::quiet_NaN()));
    log.add({2, 1}, "accuracy", value(-std::numeric_limits<double>::infinity()));
    log.add({2, 2}, "loss", value(3));
    EXPECT_THROW(log.add({2, 2}, "two", at::zeros({2})), Error);
  }
  EXPECT_EQ(lines(),
            "{\"step\": 0, \"epoch\": 1, T \"loss\": 0.5, \"l\\\"r\": 0.1}\n"
            "{\"step\": 1, \"epoch\": 1, T \"loss\": 0.7}\n"
            "{\"step\": 1, \"epoch\": 1, T \"loss\": \"NaN\"}\n"
            "{\"step\": 2, \"epoch\": 1, T \"accuracy\": \"-Infinity\"}\n"
            "{\"step\": 2, \"epoch\": 2, T \"loss\": 3}\n");
}

TEST_F(StepLogTest, ValuesAreReadWhenManyOrLongWait) {
  StepLog many(path_, {0, 1}, {.max_pending = 2});
  for (int64_t step = 0; step < 4; ++step) many.add({step, 1}, "loss", value(1));
  EXPECT_THAT(lines(),
              testing::AllOf(testing::HasSubstr("\"step\": 1,"), testing::Not(testing::HasSubstr("\"step\": 2,"))));
  StepLog late(folder_.path("late"), {0, 1}, {.max_wait = std::chrono::seconds(0)});
  late.add({0, 1}, "loss", value(1));
  late.add({0, 1}, "lr", value(1));
  EXPECT_EQ(std::filesystem::file_size(folder_.path("late")), 0u) << "a step's values share a line";
  late.add({1, 1}, "loss", value(1));
  EXPECT_GT(std::filesystem::file_size(folder_.path("late")), 0u);
}

// Two steps make an epoch. Between two epochs, an accuracy is logged.
TEST_F(StepLogTest, AResumedRunReplacesWhatItWritesAgain) {
  const auto write = [&](const StepPlace& first, int64_t last_step, double number) {
    StepLog log(path_, first);
    for (int64_t step = first.step; step <= last_step; ++step) {
      log.add({step, step / 2 + 1}, "loss", value(number));
      if (step % 2 == 1) log.add({step + 1, step / 2 + 1}, "accuracy", value(number));
    }
  };
  write({0, 1}, 4, 1);
  const auto line = [](int64_t step, int64_t epoch, const std::string& rest) {
    return "{\"step\": " + std::to_string(step) + ", \"epoch\": " + std::to_string(epoch) + ", T " + rest + "}\n";
  };
  const auto epochs = line(0, 1, "\"loss\": 1") + line(1, 1, "\"loss\": 1") + line(2, 1, "\"accuracy\": 1") +
                      line(2, 2, "\"loss\": 1") + line(3, 2, "\"loss\": 1") + line(4, 2, "\"accuracy\": 1");
  EXPECT_EQ(lines(), epochs + line(4, 3, "\"loss\": 1"));
  write({4, 3}, 4, 2);  // resumes from the checkpoint after the second epoch
  EXPECT_EQ(lines(), epochs + line(4, 3, "\"loss\": 2"));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);  // as if killed during a write
  write({5, 3}, 5, 3);
  EXPECT_EQ(lines(), epochs + line(5, 3, "\"loss\": 3") + line(6, 3, "\"accuracy\": 3"));
  write({1, 1}, 1, 4);  // resumes within the first epoch
  EXPECT_EQ(lines(), line(0, 1, "\"loss\": 1") + line(1, 1, "\"loss\": 4") + line(2, 1, "\"accuracy\": 4"));
  write({0, 1}, 0, 5);
  EXPECT_EQ(lines(), line(0, 1, "\"loss\": 5"));
}

}  // namespace
}  // namespace yoke::train::detail
