#include "yoke/train/watch/detail/step_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/command.h"

namespace yoke::train {
namespace {

std::vector<nlohmann::json> step_time_lines(const test::TemporaryFolder& folder) {
  std::vector<nlohmann::json> lines;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

RankEnv rank_one_of_two() {
  RankEnv rank;
  rank.rank = 1;
  rank.world_size = 2;
  rank.local_world_size = 2;
  return rank;
}

double monotonic_seconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(StepTimes, FirstStepsHaveALineEachAndLaterOnesOneInATenthOfASecond) {
  const test::TemporaryFolder folder;
  const double before = monotonic_seconds();
  {
    detail::StepTimes times(folder.path(), rank_one_of_two());
    for (int64_t step = 0; step < 1000; ++step) {
      times.on_step(step);
      if (step % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // clock: the work of a step
    }
  }
  const auto lines = step_time_lines(folder);
  ASSERT_GE(lines.size(), 1 + 20 + 2U);
  EXPECT_EQ(lines[0]["rank"], 1);
  EXPECT_EQ(lines[0]["world_size"], 2);
  EXPECT_EQ(lines[0]["local_world_size"], 2);
  EXPECT_EQ(lines[0]["pid"], getpid());
  for (int step = 0; step < 20; ++step) EXPECT_EQ(lines[static_cast<size_t>(step) + 1]["step"], step);
  EXPECT_EQ(lines.back()["step"], 999) << "the last step is written at the end";
  double last = before;
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_GE(lines[i]["seconds"].get<double>(), last);
    last = lines[i]["seconds"];
    if (i > 21 && i + 1 < lines.size()) {
      EXPECT_GE(last - lines[i - 1]["seconds"].get<double>(), 0.0999) << "so there are few of them";
    }
  }
  EXPECT_LE(last, monotonic_seconds()) << "the clock is CLOCK_MONOTONIC";
}

TEST(StepTimes, SayThePeakOfResidentMemory) {
  const test::TemporaryFolder folder;
  constexpr size_t kSize = 64 << 20;
  {
    detail::StepTimes times(folder.path(), {});
    times.on_step(0);
    std::vector<char> memory(kSize, 1);
    times.on_step(1 + memory[kSize / 2]);
  }
  const auto lines = step_time_lines(folder);
  const int64_t before = lines[1]["resident_peak_bytes"], after = lines[2]["resident_peak_bytes"];
  EXPECT_GT(before, 1 << 20);
  EXPECT_GE(after, before);
  EXPECT_GE(after, int64_t{kSize});
  EXPECT_GE(lines[2]["address_space_peak_bytes"].get<int64_t>(), after);
}

TEST(StepTimes, AForkedChildDoesNotWriteIntoTheFileOfItsParent) {
  const test::TemporaryFolder folder;
  detail::StepTimes times(folder.path(), {});
  times.on_step(0);
  const pid_t child = fork();
  if (child == 0) {
    times.on_step(1);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  times.on_step(1);
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    std::ifstream file(entry.path());
    std::string line;
    for (num_files += 1; std::getline(file, line);) EXPECT_TRUE(nlohmann::json::accept(line));
  }
  EXPECT_EQ(num_files, 2);
}

TEST(StepTimes, AFolderThatIsGoneIsOneWarning) {
  testing::internal::CaptureStderr();
  detail::StepTimes times("/no/such/folder", {});
  for (int64_t step = 0; step < 100; ++step) times.on_step(step);
  const auto warning = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_NE(warning.find("/no/such/folder"), warning.npos) << warning;
}

TEST(StepTimes, DoNotFollowALinkInPlaceOfTheFile) {
  const test::TemporaryFolder folder;
  folder.write("precious", "text");
  std::filesystem::create_symlink(folder.path("precious"), folder.path(fmt::format("rank-0.{}.jsonl", getpid())));
  testing::internal::CaptureStderr();
  detail::StepTimes times(folder.path(), {});
  times.on_step(0);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("step times are not written"), std::string::npos);
  EXPECT_EQ(test::slurp(folder.path("precious")), "text");
}

}  // namespace
}  // namespace yoke::train
