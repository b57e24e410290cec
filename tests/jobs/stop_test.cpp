// Tests `yoke stop`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/jobs/job.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;

constexpr const char* kStubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done";

TEST(Stop, WaitsUntilTheJobHasEnded) {
  auto job =
      RunningJob::shell(2, "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(job.is_ready(2));
  const auto result = run(yoke({"stop", job.name()}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, fmt::format("job {} has ended\n", job.name()));
  const auto ended = job.wait();
  EXPECT_EQ(ended.exit_code, 143);
  EXPECT_THAT(ended.out, HasSubstr("[0] saved"));
  EXPECT_THAT(ended.err, HasSubstr("yoke run: `yoke stop`; stopped 2 ranks\n"));
  EXPECT_EQ(run(yoke({"stop", job.name()})).exit_code, 66) << "there is none now";
}

TEST(Stop, SaysWhomItWaitsForAndKillsWhenToldTo) {
  auto job = RunningJob({"-n", "3", "--grace", "1000", "--", "sh", "-c",
                         std::string("[ $RANK = 1 ] && exec ") + kHang + "; " + kStubborn});
  ASSERT_TRUE(job.is_ready(3));
  const auto late = run(yoke({"stop", job.name(), "--timeout", "5"}));
  EXPECT_EQ(late.exit_code, 124);
  EXPECT_THAT(late.err, HasSubstr(fmt::format("yoke stop: job {}: waiting for ranks 0,2\n", job.name())));
  EXPECT_THAT(late.err, HasSubstr("after 5.0 s the job still waits for ranks 0,2; --now kills"));
  EXPECT_EQ(find_job(job.pid())->at("is_stopping"), true);
  EXPECT_THAT(run(yoke({"jobs"})).out, HasSubstr("2/3 stopping"));
  EXPECT_EQ(run(yoke({"stop", job.name(), "--now"})).exit_code, 0);
  const auto ended = job.wait();
  EXPECT_EQ(ended.exit_code, 143);
  EXPECT_THAT(ended.err, HasSubstr("2 of them by SIGKILL"));
}

TEST(Stop, NowIsNow) {
  auto job = RunningJob::shell(2, kStubborn);
  ASSERT_TRUE(job.is_ready(2));
  const auto result = run(yoke({"stop", job.name(), "--now"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(job.wait().err, HasSubstr("2 of them by SIGKILL\n")) << "and not after the grace";
}

TEST(Stop, ByRunIdAndWhateverSignalsItHandles) {
  const auto id = "run-" + new_tag();
  RunningJob job({"-n", "2", "--rdzv-id", id, "--max-restarts", "5", "--signals-to-handle", "SIGINT", "--", kHang});
  ASSERT_TRUE(job.is_ready(2));
  EXPECT_EQ(run(yoke({"stop", id})).exit_code, 0);
  EXPECT_EQ(job.wait().exit_code, 143) << "and was not started again";
}

TEST(Stop, EndsAJobThatWasStoppedByCtrlZ) {
  RunningJob job({"-n", "2", "--", kHang});
  ASSERT_TRUE(job.is_ready(2));
  job.signal(SIGSTOP);
  const auto result = run(yoke({"stop", job.name()}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(job.wait().exit_code, 143);
}

}  // namespace
}  // namespace yoke::test
