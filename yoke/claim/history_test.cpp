// Tests the history: its text with tables, its files with real files.
#include "yoke/claim/history.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr int64_t kWriter = 1001;
const Time kReadAt{std::chrono::seconds(1'000'000)};

Time second(int64_t number) { return Time(std::chrono::seconds(number)); }

TEST(ClaimHistory, ItsLinesAreRead) {
  const Use use{.uid = kWriter, .claim = "a", .keys = {"GPU-0", "GPU-1"}, .since = second(100)};
  const auto begin = begin_text(use), end = end_text("a", second(160), 20);
  struct Row {
    const char* what;
    std::string text;
    std::vector<Use> uses;
  };
  auto open = use, closed = use, unknown = use, later = use;
  open.last_sign = closed.last_sign = unknown.last_sign = later.last_sign = second(500);
  closed.end = unknown.end = second(160);
  closed.idle_seconds = 20;
  later.end = second(100);
  later.idle_seconds = 0;
  const std::vector<Row> rows = {
      {"nothing", "", {}},
      {"a claim without an end", begin, {open}},
      {"a claim that has ended", begin + end, {closed}},
      {"idle time that is not known", begin + end_text("a", second(160), std::nullopt), {unknown}},
      {"the first end counts", begin + end + end_text("a", second(900), 0), {closed}},
      {"an end without a begin", end, {}},
      {"an end before the begin", begin + end_text("a", second(50), 70), {later}},
      {"a line that a full disk cut off", begin + end.substr(0, 20) + end, {closed}},
      {"a begin in the future",
       begin_text({.uid = kWriter, .claim = "b", .keys = {"GPU-0"}, .since = second(2'000'000)}),
       {}},
      {"an end in the future", begin + end_text("a", second(2'000'000), 0), {open}},
      {"other texts", "\x1b[2J\n[]\n{\"claim\": 3}\n{\"claim\":\"c\",\"keys\":[],\"since\":1}\nnull\n" + begin, {open}},
      {"numbers that are too large", "{\"claim\":\"c\",\"keys\":[\"G\"],\"since\":1e300}\n" + begin, {open}},
  };
  for (const auto& row : rows)
    EXPECT_EQ(parse_history(kWriter, {{row.text, second(500)}}, kReadAt), row.uses) << row.what;
  EXPECT_EQ(parse_history(kWriter, {{begin, second(500)}, {end, second(600)}}, kReadAt), std::vector{closed})
      << "in two files";
}

class ClaimHistoryFiles : public testing::Test {
 protected:
  ClaimHistoryFiles() : path_(testing::TempDir() + "yoke-history-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    chmod(path_.c_str(), 01777);
  }
  ~ClaimHistoryFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  LockFolder folder() const { return LockFolder(path_, LockFolder::Owner::kRootOrSelf); }
  static Use use(const std::string& claim) {
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    return {.uid = int64_t{geteuid()}, .claim = claim, .keys = {"GPU-0"}, .since = now - std::chrono::seconds(60)};
  }
  std::vector<std::string> names() const { return folder().names("yoke-history-"); }

  std::string path_;
};

TEST_F(ClaimHistoryFiles, WhatIsAppendedIsRead) {
  const auto now = std::chrono::system_clock::now();
  const auto file = append_begin(folder(), use("a"));
  ASSERT_TRUE(file);
  EXPECT_EQ(append_begin(folder(), use("b")), file) << "one file has many claims";
  EXPECT_TRUE(append_end(folder(), *file, "a", std::chrono::floor<std::chrono::seconds>(now), 7));
  const auto uses = read_history(folder(), now);
  ASSERT_THAT(uses, SizeIs(2));
  EXPECT_EQ(uses[0].uid, geteuid());
  EXPECT_EQ(uses[0].end, std::chrono::floor<std::chrono::seconds>(now));
  EXPECT_EQ(uses[0].idle_seconds, 7);
  EXPECT_EQ(uses[1].end, std::nullopt);
  EXPECT_EQ(newest_history_file(folder()), file);
  EXPECT_FALSE(append_end(folder(), "yoke-history-1-00", "a", now, 7)) << "there is no such file";
}

TEST_F(ClaimHistoryFiles, AFileFromBeforeTheMachinesStartIsNotTouchedAnyMore) {
  const auto first = append_begin(folder(), use("a"));
  ASSERT_TRUE(first);
  const timespec long_ago[] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/" + *first).c_str(), long_ago, 0), 0);
  const auto second = append_begin(folder(), use("b"));
  ASSERT_TRUE(second);
  EXPECT_NE(first, second) << "its time says when the machine stopped";
}

TEST_F(ClaimHistoryFiles, ItIsBounded) {
  auto long_one = use("a");
  for (int i = 0; i < 100; ++i) long_one.keys.push_back("GPU-" + std::string(80, 'x') + std::to_string(i));
  for (int i = 0; i < 300; ++i) {
    long_one.claim = std::to_string(i);
    long_one.since += std::chrono::seconds(1);
    ASSERT_TRUE(append_begin(folder(), long_one));
  }
  EXPECT_LE(names().size(), 8U);
  uintmax_t size = 0;
  for (const auto& name : names()) size += std::filesystem::file_size(path_ + "/" + name);
  EXPECT_LE(size, uintmax_t{2} << 20);
  EXPECT_EQ(read_history(folder(), std::chrono::system_clock::now() + std::chrono::seconds(1000)).back().claim, "299");
}

TEST_F(ClaimHistoryFiles, AFileWithAnotherUsersNumberInItsNameIsNotRead) {
  std::ofstream(path_ + "/yoke-history-4000000-00-00") << begin_text(use("forged"));
  ASSERT_EQ(symlink("/etc/passwd", (path_ + "/yoke-history-" + std::to_string(geteuid()) + "-00-00").c_str()), 0);
  EXPECT_THAT(read_history(folder(), std::chrono::system_clock::now()), SizeIs(0));
  EXPECT_TRUE(append_begin(folder(), use("a"))) << "and keeps nobody from having a history";
}

}  // namespace
}  // namespace yoke::claim
