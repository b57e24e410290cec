#include "yoke/tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/support/command.h"

namespace yoke::tune {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A shell that writes the step times of 300 steps of `10 ms + 0.1 ms * B`, each of which adds 2 MiB of memory, and
/// then waits to be ended.
constexpr const char* kTraining = R"(
awk -v b="$BATCH_SIZE" 'BEGIN {
  print "{\"rank\":0,\"world_size\":1}"
  for (i = 0; i < 300; ++i)
    printf "{\"step\":%d,\"seconds\":%.4f,\"resident_peak_bytes\":%d}\n", i, 1000 + i * (0.01 + 0.0001 * b),
      (100 + 2 * i) * 1048576
}' > "$YOKE_STEP_TIMES/rank-0.$$.jsonl"
exec sleep 1000)";

class TuneTuner : public testing::Test {
 protected:
  TunerOptions options(const char* script) {
    TunerOptions options{.argv = {"sh", "-c", script},
                         .environment = {{"PATH", "/usr/bin:/bin"}, {"TMPDIR", folder_.path()}},
                         .handover = {},
                         .search = {.max = 128},
                         .host_bytes = int64_t{2} << 30,
                         .soak_steps = 0};
    options.on_measured = [this](const Measurement& run, const SearchOptions& search) {
      lines_.push_back(std::to_string(run.batch) + ": " + to_line(run, search));
    };
    return options;
  }
  void TearDown() override { EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "files are left"; }

  test::TemporaryFolder folder_;
  std::vector<std::string> lines_;
};

TEST_F(TuneTuner, FindsTheFastestSizeAndChecksIt) {
  auto wanted = options(kTraining);
  wanted.soak_steps = 200;
  Tuner tuner(wanted);
  const auto report = tuner.tune();
  ASSERT_TRUE(report);
  ASSERT_TRUE(report->answer.chosen) << report->answer.problem;
  EXPECT_EQ(report->answer.chosen->batch, 128);
  EXPECT_EQ(report->answer.bound, Bound::kMaximum);
  EXPECT_NEAR(report->answer.chosen->step_seconds, 0.0228, 1e-6);
  EXPECT_EQ(lines_.size(), tuner.measurements().size()) << "a check that holds is no measurement";
  ASSERT_TRUE(report->soak);
  EXPECT_EQ(report->soak->num_steps, 300);
  EXPECT_EQ(report->soak->growth_bytes_per_step, 2 << 20);
  // 2 GiB less the 698 MiB of the last step are 675 steps.
  EXPECT_THAT(report->answer.warnings, testing::Contains(HasSubstr("would be used up after 675 more steps")));
}

TEST_F(TuneTuner, TellsWhyNoSizeWorks) {
  Tuner tuner(options("echo first; echo 'no such file: x.h5' >&2; exit 3"));
  const auto report = tuner.tune();
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->answer.chosen);
  const auto error = tuner.no_answer(*report);
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.what(), AllOf(StartsWith("with batch size "), HasSubstr("; the last lines of sh:\n  first\n"),
                                  testing::EndsWith("  no such file: x.h5")));
  ASSERT_FALSE(lines_.empty());
  EXPECT_THAT(lines_[0], HasSubstr(": no such file: x.h5"));
}

TEST_F(TuneTuner, AProgramThatPrintsNothingIsReportedWithoutLines) {
  Tuner tuner(options("exit 3"));
  const auto report = tuner.tune();
  ASSERT_TRUE(report);
  EXPECT_THAT(tuner.no_answer(*report).what(), testing::EndsWith("; it printed nothing"));
}

TEST_F(TuneTuner, ASizeThatExceedsTheMemoryIsNotTheAnswer) {
  const auto script = std::string("test \"$BATCH_SIZE\" -lt 64 || { echo CUDA out of memory; exit 1; }\n") + kTraining;
  Tuner tuner(options(script.c_str()));
  const auto report = tuner.tune();
  ASSERT_TRUE(report);
  ASSERT_TRUE(report->answer.chosen) << report->answer.problem;
  EXPECT_LT(report->answer.chosen->batch, 64);
  EXPECT_EQ(report->answer.bound, Bound::kMemory);
}

TEST_F(TuneTuner, HandsTheSizeOverAsItIsAskedTo) {
  auto wanted = options("echo \"$BATCH_SIZE $B $YOKE_TUNE_WORST_CASE $0 $*\" >&2; exit 3");
  wanted.environment.set("YOKE_TUNE_WORST_CASE", "yes");
  wanted.search.max = 1;
  wanted.handover = {.variable = "B", .option = ""};
  const auto last_lines_of = [](const TunerOptions& options) {
    Tuner tuner(options);
    const auto report = tuner.tune();
    return report ? std::string(tuner.no_answer(*report).what()) : "";
  };
  EXPECT_THAT(last_lines_of(wanted), HasSubstr("\n   1  sh"));
  wanted.handover = {.variable = "", .option = "--batch"};
  EXPECT_THAT(last_lines_of(wanted), HasSubstr("\n     --batch 1"));
  wanted.handover = {};
  EXPECT_THAT(last_lines_of(wanted), HasSubstr("\n  1   sh"));
  wanted.argv.push_back("size={}");
  EXPECT_THAT(last_lines_of(wanted), HasSubstr("\n     size=1"));
}

TEST_F(TuneTuner, ASignalEndsTheSearch) {
  Tuner tuner(options("kill -TERM $PPID; exec sleep 1000"));
  EXPECT_FALSE(tuner.tune());
  EXPECT_EQ(tuner.interruption(), SIGTERM);
  EXPECT_THAT(tuner.measurements(), IsEmpty());
}

}  // namespace
}  // namespace yoke::tune
