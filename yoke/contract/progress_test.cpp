#include "yoke/contract/progress.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/support/command.h"
#include "yoke/contract/variables.h"

namespace yoke {
namespace {

TEST(Progress, SurvivesAKilledRank) {
  const test::TemporaryFolder folder;
  const auto file = folder.path("progress");
  const pid_t rank = fork();
  if (rank == 0) {
    setenv(variable::kProgress, file.c_str(), 1);
    for (int64_t step = 1; step <= 812; ++step) report_progress(step);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(read_progress(file), 812);
  struct stat made {};
  ASSERT_EQ(stat(file.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0600U);
  EXPECT_EQ(made.st_size, 8);
}

TEST(Progress, IsUnknownIfNothingWasReported) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_progress(folder.path("none")), std::nullopt);
  std::ofstream(folder.path("short")) << "1234567";
  EXPECT_EQ(read_progress(folder.path("short")), std::nullopt);
  ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_progress(folder.path("fifo")), std::nullopt);
  EXPECT_EQ(read_progress(folder.path("")), std::nullopt);
}

}  // namespace
}  // namespace yoke
