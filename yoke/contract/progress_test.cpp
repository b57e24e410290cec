#include "yoke/contract/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/command.h"
#include "yoke/base/file.h"
#include "yoke/contract/variables.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

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

/// Runs `body` in a process that was told to report to `file`, and returns how it ended.
template <class Body>
int in_rank(const std::string& file, Body body) {
  const pid_t rank = fork();
  if (rank == 0) {
    setenv(variable::kProgress, file.c_str(), 1);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(rank, &status, 0);
  return status;
}

TEST(Progress, OtherProcessesOfARankMayBeginToReportWhileItDoes) {
  const test::TemporaryFolder folder;
  const auto file = folder.path("progress");
  const pid_t rank = fork();
  if (rank == 0) {
    setenv(variable::kProgress, file.c_str(), 1);
    while (!fs::exists(folder.path("end"))) {
      for (int i = 0; i < 100'000; ++i) report_progress(9);
    }
    _exit(0);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(in_rank(file, [] { report_progress(8); }), 0);
    const auto read = read_progress(file);
    EXPECT_TRUE(read == 8 || read == 9);
  }
  std::ofstream(folder.path("end"));
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(status, 0) << "its memory was taken away";
}

TEST(Progress, AProcessThatIsForkedBeforeItIsARankReportsToo) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(in_rank("",
                    [&] {
                      report_progress(1);  // as a module that is imported before ranks are forked
                      if (in_rank(folder.path("progress"), [] { report_progress(2); }) != 0) _exit(1);
                    }),
            0);
  EXPECT_EQ(read_progress(folder.path("progress")), 2);
}

TEST(Progress, AnotherFileStaysAsItIs) {
  const test::TemporaryFolder folder;
  for (const std::string text : {"1234567", "a text of the user's"}) {
    std::ofstream(folder.path("text")) << text;
    testing::internal::CaptureStderr();
    EXPECT_EQ(in_rank(folder.path("text"), [] { report_progress(5); }), 0);
    EXPECT_EQ(read_file(folder.path("text")), text);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("cannot be recorded"));
  }
  fs::create_symlink(folder.path("text"), folder.path("link"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(in_rank(folder.path("link"), [] { report_progress(5); }), 0);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(read_file(folder.path("text")), "a text of the user's");
}

TEST(Progress, NoStepsAndTooManyAreDifferent) {
  const test::TemporaryFolder folder;
  const auto reported = [&](int64_t num_steps) {
    EXPECT_EQ(in_rank(folder.path("progress"), [&] { report_progress(num_steps); }), 0);
    return read_progress(folder.path("progress"));
  };
  EXPECT_EQ(reported(0), 0);
  EXPECT_EQ(reported(INT64_MAX), INT64_MAX - 1);
  EXPECT_EQ(reported(-1), std::nullopt);
  EXPECT_EQ(reported(INT64_MIN), std::nullopt);
}

TEST(Progress, ARankForgetsWhatItHasKept) {
  const test::TemporaryFolder folder;
  const auto path = folder.path("state");
  forget_kept_steps(path);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  std::ofstream(path + ".1") << std::string("\7\0\0\0\0\0\0\0and more", 16);
  EXPECT_EQ(read_kept_step(path), 6);
  forget_kept_steps(path);
  EXPECT_EQ(read_kept_step(path), std::nullopt);
  EXPECT_EQ(read_file(path + ".1").substr(8), "and more");
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
