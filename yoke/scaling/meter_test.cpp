#include "yoke/scaling/meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::scaling {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Writes the times of 300 steps, each of which takes 50 ms, or 60 ms in a copy that waits for others.
constexpr const char* kSteps = R"(
write_steps() {
  awk -v seconds=$([ -n "$YOKE_LOCK_STEP" ] && echo 0.06 || echo 0.05) -v ranks="$1" 'BEGIN {
    printf "{\"rank\":0,\"world_size\":%d}\n", ranks
    for (i = 0; i < 300; ++i) printf "{\"step\":%d,\"seconds\":%.2f}\n", i, 1000 + i * seconds
  }' > "$YOKE_STEP_TIMES/rank-0.$$.jsonl"
}
)";

/// `yoke profile --shapes --stop --steps 8 --out FOLDER -- PROGRAM`, with a trace of one event.
constexpr const char* kYoke = R"(#!/bin/sh
[ "$1 $2 $3 $4 $5 $6 $8" = "profile --shapes --stop --steps 8 --out --" ] || exit 9
echo '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}]}' \
  > "$7/rank0.json"
)";

class ScalingMeter : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("yoke", kYoke, true);
    folder_.write("tmp/keep", "");
  }
  void TearDown() override {
    const std::filesystem::directory_iterator left(folder_.path("tmp"));
    EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "files are left";
  }

  MeterOptions options(const std::string& script) const {
    return {.argv = {"sh", "-c", kSteps + script},
            .environment = {{"PATH", "/usr/bin:/bin"}, {"TMPDIR", folder_.path("tmp")}},
            .yoke = folder_.path("yoke")};
  }
  std::string error_of(const MeterOptions& options, ErrorCode code = ErrorCode::kFailedPrecondition) const {
    int interruption = 0;
    try {
      measure_training(options, interruption);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

TEST_F(ScalingMeter, TimesStepsAloneAndBesideCopiesAndRecordsATrace) {
  std::vector<std::string> told;
  auto wanted = options("write_steps 1; exec sleep 1000");
  wanted.num_neighbours = 2;
  wanted.on_progress = [&](const std::string& text) { told.push_back(text); };
  int interruption = 0;
  const auto measured = measure_training(wanted, interruption);
  ASSERT_TRUE(measured);
  EXPECT_NEAR(measured->step_seconds, 0.05, 1e-9);
  EXPECT_NEAR(measured->neighbour_step_seconds.value_or(0), 0.06, 1e-9);
  EXPECT_EQ(measured->device_peak_bytes, 0);
  EXPECT_EQ(measured->trace.path, "rank0.json");
  EXPECT_EQ(measured->trace.events.size(), 1U);
  EXPECT_THAT(told, testing::Contains(StartsWith("timing steps: ")));
  EXPECT_THAT(told, testing::Contains(StartsWith("timing steps of several copies: ")));
  EXPECT_EQ(told.back(), "");
}

TEST_F(ScalingMeter, TellsWhyAProgramCannotBeMeasured) {
  EXPECT_THAT(error_of(options("echo no data; exit 5")),
              AllOf(StartsWith("the program ended with status 5; the last lines of sh:"), EndsWith("  no data")));
  EXPECT_EQ(error_of(options("exit 0")),
            "the program ended after 0 steps, which are too few to measure; let it train longer; it printed nothing");
  EXPECT_THAT(error_of(options("write_steps 4; exec sleep 1000"), ErrorCode::kInvalidArgument),
              StartsWith("the program is a job of 4 ranks"));
  auto missing = options("");
  missing.argv = {"no-such-program"};
  EXPECT_EQ(error_of(missing), "no-such-program: the program was not found");
  auto hanging = options("exec sleep 1000");
  hanging.timeout_s = 1e-3;
  EXPECT_EQ(error_of(hanging), "no step ended for 0.001 s (--timeout); it printed nothing");
  auto unrecorded = options("write_steps 1; exec sleep 1000");
  unrecorded.yoke = "/bin/false";
  EXPECT_THAT(error_of(unrecorded), HasSubstr("no trace was recorded (the program ended with status 1)"));
}

TEST_F(ScalingMeter, NamesTheCopyThatEnded) {
  auto wanted = options("case $YOKE_LOCK_STEP in */1) exit 0;; esac; write_steps 1; exec sleep 1000");
  wanted.num_neighbours = 3;
  EXPECT_THAT(error_of(wanted), StartsWith("copy 2 of sh ended after 0 steps, which are too few to measure, and its "
                                           "output is not kept; start 3 at once"));
}

TEST_F(ScalingMeter, ASignalEndsTheMeasurement) {
  int interruption = 0;
  EXPECT_FALSE(measure_training(options("kill -TERM $PPID; exec sleep 1000"), interruption));
  EXPECT_EQ(interruption, SIGTERM);
}

TEST(ScalingCopies, EachGetsAGpuOrInstanceThatProgramsSee) {
  const MeterOptions options{.argv = {"./train"}, .environment = {}, .yoke = "yoke"};
  const std::string visible = R"({"devices": [
    {"index": 1, "instance": null, "visible": true, "vendor": "nvidia"},
    {"index": 0, "instance": null, "visible": false, "vendor": "nvidia"},
    {"index": 2, "instance": 3, "visible": true, "vendor": "nvidia"},
    {"index": 3, "instance": null, "visible": true, "vendor": "amd"}]})";
  using Words = std::vector<std::string>;
  EXPECT_THAT(commands_with_gpus(options, 2, visible),
              testing::ElementsAre(Words{"yoke", "visible", "--set", "1", "--", "./train"},
                                   Words{"yoke", "visible", "--set", "2:3", "--", "./train"}));
  EXPECT_THROW(commands_with_gpus(options, 3, visible), Error) << "the third is of another vendor";
}

}  // namespace
}  // namespace yoke::scaling
