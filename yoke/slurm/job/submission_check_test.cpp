#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/slurm/job/planned_job.h"

namespace yoke::slurm {
namespace {

using testing::HasSubstr;

ScriptPlan plan_with(const std::string& output, const std::string& name = "tale") {
  ScriptPlan plan;
  plan.directives = {{"--job-name=" + name, ""}, {"--output=" + output, ""}};
  return plan;
}

TEST(SlurmSubmissionCheck, RefusesOutputsThatNobodyCanWrite) {
  const test::FakeSlurm slurm;
  slurm.write("folder/file", "");
  EXPECT_EQ(directive_of(plan_with("a b"), "--output"), "a b");
  EXPECT_EQ(directive_of(plan_with("a"), "--error"), "");
  for (const auto* output : {"%j.out", "folder/%j.out", "folder/file", "/dev/null", "folder/%x/%j", "/no/such/%j"}) {
    EXPECT_NO_THROW(check_outputs(plan_with(output), {})) << output;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"$HOME/x", "Slurm replaces no $NAME and no ~ there"},
      {"~/x", "write the whole path"},
      {"a\\%j", "Slurm drops backslashes"},
      {"folder", "it is a folder; name a file in it, such as folder/slurm-%j.out"},
      {"no folder/%j", "make it first: mkdir -p 'no folder'"},
  };
  for (const auto& [output, why] : refused) {
    EXPECT_THAT(test::message_of([&, one = output] {
                  check_outputs(plan_with(one), Version{22, 5, 0});
                }),
                HasSubstr(why));
  }
  EXPECT_NO_THROW(check_outputs(plan_with("nowhere/%j"), Version{23, 2, 0})) << "this Slurm makes the folder";
  EXPECT_NO_THROW(check_outputs(plan_with("%j.out", "a/b"), {}));
  EXPECT_THAT(test::message_of([&] { check_outputs(plan_with("%x.out", "a/b"), {}); }),
              HasSubstr("use a name without /"));
}

TEST(SlurmSubmissionCheck, NamesTheLargestIndexOfThisCluster) {
  const test::FakeSlurm slurm;
  EXPECT_NO_THROW(check_array_size("0-2000", slurm.environment())) << "slurmctld does not answer";
  slurm.make_scontrol({""});
  EXPECT_NO_THROW(check_array_size("0-1000%2", slurm.environment()));
  EXPECT_THAT(test::message_of([&] { check_array_size("0-1001", slurm.environment()); }),
              HasSubstr("the largest index is 1001, and those of this cluster are at most 1000 (MaxArraySize=1001)"));
}

}  // namespace
}  // namespace yoke::slurm
