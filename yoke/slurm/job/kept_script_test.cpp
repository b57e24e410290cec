#include <gtest/gtest.h>

#include "yoke/slurm/job/job_note.h"

namespace yoke::slurm {
namespace {

constexpr const char* kArray = "#!/bin/bash\n# text\n#SBATCH --nodes=1\n#SBATCH --array=0-3%2  # why\n\nsrun ./train\n";

TEST(SlurmKeptScript, TellsWhetherItIsAnArray) {
  EXPECT_EQ(array_of_script(kArray), "0-3%2");
  EXPECT_EQ(array_of_script("#!/bin/bash\n#SBATCH --array=7"), "7");
  EXPECT_EQ(array_of_script("#!/bin/bash\n#SBATCH --nodes=1\nsrun ./train\n"), std::nullopt);
  EXPECT_EQ(array_of_script("#!/bin/bash\necho\n#SBATCH --array=1\n"), std::nullopt) << "Slurm does not read it";
}

TEST(SlurmKeptScript, HasOneTaskAlone) {
  EXPECT_EQ(script_of_task(kArray, 2), "#!/bin/bash\n# text\n#SBATCH --nodes=1\n#SBATCH --array=2\n\nsrun ./train\n");
  EXPECT_EQ(script_of_task("#SBATCH --array=0-3", 1), "#SBATCH --array=1");
  EXPECT_TRUE(may_have_task("0-3%2", 3));
  EXPECT_FALSE(may_have_task("0-3,8%2", 4));
  EXPECT_TRUE(may_have_task("0-8:2", 4));
}

TEST(SlurmKeptScript, IsNotInALineOfSubmissionWithoutAFile) {
  for (const auto* line : {"sbatch --parsable", "sbatch", "/usr/bin/sbatch --parsable -N 2", "sbatch -J name"}) {
    EXPECT_TRUE(is_from_standard_input(line)) << line;
  }
  for (const auto* line : {"sbatch job.sh", "sbatch -N2 job.sh 3", "sbatch --wrap true", "srun -N2 ./train", ""}) {
    EXPECT_FALSE(is_from_standard_input(line)) << line;
  }
}

TEST(SlurmKeptScript, IsNotThatOfANewerJobWithThisNumber) {
  Account account;
  account.job = {.number = 7, .submitted = Time(Seconds(5003)), .folder = "/w"};
  EXPECT_TRUE(is_note_of(5000, "/w", {}));
  EXPECT_TRUE(is_note_of(5000, "/link/to/w", {account})) << "clocks differ a little";
  EXPECT_TRUE(is_note_of(1000, "/w", {account})) << "the accounts may have lost earlier runs";
  EXPECT_FALSE(is_note_of(1000, "/v", {account}));
}

}  // namespace
}  // namespace yoke::slurm
