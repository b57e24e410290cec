#include "yoke/slurm/job/job_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const nlohmann::ordered_json kNote = {{"name", "tale"}, {"output_pattern", "%x-%j.txt"}};

TEST(SlurmJobNote, LeadsToTheScriptAndTheOutput) {
  test::FakeSlurm slurm;
  test::Heard heard;
  slurm.make_scontrol({""});
  slurm.make("sbatch",
             "env >" + slurm.path("env") + "; cat >" + slurm.path("got") + "; echo 'sbatch: hello' >&2; echo 12");
  auto environment = slurm.environment();
  environment.set("SBATCH_TIMELIMIT", "1");
  const auto note = submit_with_note(kNote, "#!/bin/sh\n", environment, heard.tell());
  EXPECT_EQ(test::slurp(slurm.path("got")), "#!/bin/sh\n");
  EXPECT_THAT(test::slurp(slurm.path("env")), testing::Not(HasSubstr("SBATCH_TIMELIMIT")));
  EXPECT_THAT(heard.slurm, ElementsAre("sbatch: hello\n"));
  EXPECT_THAT(heard.yoke, IsEmpty());
  EXPECT_EQ(text_member(note, "job"), "12");
  EXPECT_EQ(text_member(note, "cluster"), "yoke");
  EXPECT_EQ(text_member(note, "output"), slurm.path("tale-12.txt"));
  EXPECT_EQ(test::slurp(text_member(note, "script")), "#!/bin/sh\n");
  EXPECT_EQ(std::filesystem::status(slurm.path("slurm-12.sh")).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(note_of(12, slurm.environment()), note);
  EXPECT_EQ(note_of(13, slurm.environment()), std::nullopt);
  EXPECT_EQ(text_member(note, "submitted"), "") << "it is a number";
}

TEST(SlurmJobNote, IsNotThatOfAnotherClusterWithThisHome) {
  test::FakeSlurm slurm;
  test::Heard heard;
  slurm.make_scontrol({""});
  slurm.make("sbatch", "echo '12;beta'");  // as in a federation
  const auto of_beta = submit_with_note(kNote, "of beta\n", slurm.environment(), heard.tell());
  EXPECT_EQ(note_of(12, slurm.environment()), std::nullopt);
  EXPECT_EQ(cluster_of_other_note(12, slurm.environment()), "beta");
  slurm.write("tale-12.txt", "");
  slurm.make("sbatch", "echo 12");
  const auto own = submit_with_note(kNote, "own\n", slurm.environment(), heard.tell());
  EXPECT_EQ(text_member(own, "script"), slurm.path("slurm-12.yoke.sh"));
  EXPECT_EQ(test::slurp(slurm.path("slurm-12.sh")), "of beta\n");
  EXPECT_THAT(heard.yoke, ElementsAre("warning: " + slurm.path("tale-12.txt") +
                                      " is also the output of another job 12, perhaps of another cluster; submit from "
                                      "another folder, or give -o with another name"));
  EXPECT_EQ(note_of(12, slurm.environment()), own);
  EXPECT_NO_THROW(require_cluster("yoke", "it", slurm.environment()));
  EXPECT_THAT(
      test::message_of([&] { require_cluster("beta", "it", slurm.environment()); }, ErrorCode::kFailedPrecondition),
      HasSubstr("it is of cluster beta, and the Slurm of this host is that of yoke"));
  slurm.make_failing("scontrol", test::kNoController);
  EXPECT_EQ(cluster_here(slurm.environment()), "");
  EXPECT_NO_THROW(require_cluster("beta", "it", slurm.environment())) << "nobody knows";
}

TEST(SlurmJobNote, IsNotNeededByTheJob) {
  test::FakeSlurm slurm;
  test::Heard heard;
  slurm.make_scontrol({""});
  slurm.make("sbatch", "echo 12");
  slurm.write("state/yoke/slurm/12", "a file is where the folder should be");
  std::filesystem::create_directories("slurm-12.sh/x");
  const auto note = submit_with_note(kNote, "#!/bin/sh\n", slurm.environment(), heard.tell());
  EXPECT_EQ(text_member(note, "job"), "12");
  EXPECT_EQ(heard.yoke.size(), 1U) << "the script is beside, with the name of the cluster";
  EXPECT_THAT(heard.yoke.back(), HasSubstr("warning: no note of the job is kept: "));
}

}  // namespace
}  // namespace yoke::slurm
