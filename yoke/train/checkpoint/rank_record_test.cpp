#include "yoke/train/checkpoint/detail/rank_record.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train::detail {
namespace {

void write(RankRecord& record, int64_t step, std::string_view bytes) {
  const std::array pieces = {bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)};
  record.write(step, pieces);
}

class RankRecordTest : public testing::Test {
 protected:
  RankRecordTest() { std::filesystem::create_directory(folder_); }
  ~RankRecordTest() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("rank-record-" + std::to_string(getpid()));
  const std::string path_ = folder_ / "record";
};

TEST_F(RankRecordTest, IsReadByTheNextProcessOfTheRank) {
  const pid_t child = fork();
  if (child == 0) {
    RankRecord record(path_);
    write(record, 7, "old");
    write(record, 8, std::string(10'000, 'x'));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RankRecord record(path_);
  ASSERT_EQ(record.step(), 8);
  EXPECT_EQ(record.bytes(), std::string(10'000, 'x'));
}

TEST_F(RankRecordTest, IsEmptyBeforeItIsWrittenAndAfterItWasCleared) {
  RankRecord record(path_);
  EXPECT_EQ(record.step(), std::nullopt);
  write(record, 0, "");
  EXPECT_EQ(record.step(), 0);
  EXPECT_EQ(record.bytes(), "");
  record.clear();
  EXPECT_EQ(record.step(), std::nullopt);
  EXPECT_EQ(RankRecord(path_).step(), std::nullopt);
}

TEST_F(RankRecordTest, AProcessThatIsKilledWhileItWritesLeavesNoHalfRecord) {
  const std::string even(5'000, 'e'), odd(5'000, 'o');
  auto begun = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    RankRecord record(path_);
    for (int64_t step = 0;; ++step) {
      write(record, step, step % 2 == 0 ? even : odd);
      if (step == 100 && ::write(begun.write_end.value(), "", 1) != 1) _exit(1);
    }
  }
  char byte = 0;
  ASSERT_EQ(read(begun.read_end.value(), &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const RankRecord record(path_);
  if (const auto step = record.step()) {
    EXPECT_EQ(record.bytes(), *step % 2 == 0 ? even : odd);
  }
}

TEST_F(RankRecordTest, NamesTheFileThatCannotBeWritten) {
  RankRecord record(folder_ / "no" / "such");
  EXPECT_THROW(
      {
        try {
          write(record, 1, "x");
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("no/such"), std::string::npos);
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace yoke::train::detail
