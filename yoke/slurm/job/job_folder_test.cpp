#include "yoke/slurm/job/job_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/command.h"

namespace yoke::slurm {
namespace {

TEST(SlurmJobFolder, IsInTheStateFolderOfTheUser) {
  EXPECT_EQ(jobs_folder({{"HOME", "/h"}, {"YOKE_SLURM_SAMPLES", "0"}}), "/h/.local/state/yoke/slurm");
  EXPECT_EQ(jobs_folder({{"HOME", "/h"}, {"XDG_STATE_HOME", "relative"}}), "/h/.local/state/yoke/slurm");
  EXPECT_EQ(samples_folder({{"HOME", "/h"}}), "/h/.local/state/yoke/slurm");
  EXPECT_EQ(samples_folder({{"HOME", "/h"}, {"XDG_STATE_HOME", "/s"}}), "/s/yoke/slurm");
  EXPECT_EQ(samples_folder({{"HOME", "/h"}, {"YOKE_SLURM_SAMPLES", "/p"}}), "/p");
  EXPECT_EQ(samples_folder({{"HOME", "/h"}, {"YOKE_SLURM_SAMPLES", "0"}}), std::nullopt);
  EXPECT_EQ(samples_folder({}), std::nullopt);
}

TEST(SlurmJobFolder, HasRegularFilesOfALimitedSize) {
  test::TemporaryFolder folder;
  folder.write("a", "text");
  EXPECT_EQ(read_own_file(folder.path("a"), 4), "text");
  EXPECT_EQ(read_own_file(folder.path("a"), 3), std::nullopt);
  EXPECT_EQ(read_own_file(folder.path("none"), 4), std::nullopt);
  std::filesystem::create_symlink("a", folder.path("link"));
  EXPECT_EQ(read_own_file(folder.path("link"), 4), std::nullopt);
  EXPECT_EQ(why_not_own(folder.path("a")), "");
  EXPECT_EQ(why_not_own(folder.path("none")), folder.path("none") + " does not exist any more");
  EXPECT_EQ(why_not_own(folder.path("link")), folder.path("link") + " is no regular file any more");
}

}  // namespace
}  // namespace yoke::slurm
