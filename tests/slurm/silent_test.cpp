// Tests what `yoke slurm` does without an answer of Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/fake_slurm.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SlurmSilent : public testing::Test {
 protected:
  Result slurm(std::vector<std::string> words) const {
    words.insert(words.begin(), {YOKE_COMMAND, "slurm"});
    return run({.argv = words, .environment = {{"HOME", fake_.path()}, {"XDG_STATE_HOME", fake_.path("state")}}});
  }
  FakeSlurm fake_;
};

TEST_F(SlurmSilent, ARerunSaysOfWhichArrayItIsNotKnownWhetherItRuns) {
  fake_.make("sbatch", "exit 0");  // without a number
  // The second task has other options since its last run, so each is an array of its own.
  const auto task = nlohmann::json{{"parameters", nlohmann::json::object()}, {"argv", {"true"}}};
  fake_.write("sweep/sweep.json", nlohmann::json{{"format", "yoke sweep 1"},
                                                 {"job", "7"},
                                                 {"tasks", {task, task}},
                                                 {"reruns", {{{"job", "8"}, {"tasks", {1}}, {"options", {"-t", "5"}}}}}}
                                      .dump());
  fake_.write("sweep/sweep.sh", "#!/bin/sh\n");
  fake_.write("sweep/0/status", "3 7 0\n");
  fake_.write("sweep/1/status", "3 8 0\n");
  const auto result = slurm({"array", "--rerun", "sweep", "--json"});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_THAT(result.err, HasSubstr("it is not known whether 1 of 2 arrays was submitted; look at `squeue --me`"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 more was not submitted"), Not(HasSubstr("submits their tasks later"))));
  const auto failed = nlohmann::json::parse(result.out).at("failed");
  ASSERT_EQ(failed.size(), 2U) << failed;
  EXPECT_EQ(failed[0].at("tasks"), nlohmann::json::array({0}));
  EXPECT_EQ(failed[0].at("may_run"), true);
  EXPECT_EQ(failed[1].at("error"), "not tried");
  EXPECT_EQ(failed[1].at("may_run"), false);
  EXPECT_EQ(fake_.calls("sbatch").size(), 1U);

  // A refusal is certain.
  fake_.make_failing("sbatch", "sbatch: error: Batch job submission failed: Invalid qos specification");
  const auto refused = slurm({"array", "--rerun", "sweep", "--json"});
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("2 of 2 arrays were not submitted; --rerun submits their tasks later"));
  EXPECT_EQ(nlohmann::json::parse(refused.out).at("failed")[0].at("may_run"), false);
}

TEST_F(SlurmSilent, ResumingSeveralJobsEndsWhereSlurmctldDoesNotAnswer) {
  fake_.make_failing("scontrol", kNoController);
  const auto result = slurm({"resume", "42_[0-3]"});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("the others were not tried, from 42_1 on"));
  EXPECT_EQ(fake_.calls("scontrol").size(), 1U);
}

TEST_F(SlurmSilent, AJobThatWasNamedTwiceIsResumedOnce) {
  for (const auto* words : {"5,5", "42_[1,1]", "42_[1],42_1", "130,130+0,130+1"}) {
    const auto result = slurm({"resume", words});
    EXPECT_EQ(result.exit_code, 66) << words;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << words << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr("cannot be put back into the queue")) << words;
  }
  // The others of several are tried.
  EXPECT_EQ(lines_of(slurm({"resume", "7,5,7"}).err).size(), 2U);
}

}  // namespace
}  // namespace yoke::test
