#include "yoke/slurm/job/follow_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/slurm/job/log_files.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void append(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

TEST(SlurmLogReader, GoesOnWhereItWasLeft) {
  const test::TemporaryFolder folder;
  const auto file = folder.path("a");
  LogReader reader(file);
  const auto take = [&](std::optional<int64_t> num_lines = {}) {
    std::vector<std::string> lines;
    reader.print_new(num_lines, [&](std::string_view line) { lines.emplace_back(line); });
    return lines;
  };
  EXPECT_EQ(test::error_of([&] { take(); }).code(), ErrorCode::kNotFound);
  EXPECT_FALSE(reader.has_begun());
  append(file, "1\n2\nrest");
  EXPECT_THAT(take(), ElementsAre("1", "2"));
  append(file, " of 3\n4");
  EXPECT_THAT(take(), ElementsAre("rest of 3")) << "the end of the line came later";
  std::filesystem::resize_file(file, 0);
  append(file, "5\n");
  EXPECT_THAT(take(), ElementsAre("4", "5")) << "the file was written anew";
  std::filesystem::rename(file, folder.path("b"));
  append(file, "6\n7\n8\n");
  EXPECT_THAT(take(), ElementsAre("6", "7", "8")) << "it is another file";
  append(file, std::string(70'000, 'x'));
  EXPECT_EQ(take().at(0).size(), 70'000U) << "a line that is too long to wait for its end";
}

TEST(SlurmLogReader, BeginsWithTheLastLines) {
  const test::TemporaryFolder folder;
  const std::string far(100'000, 'x');
  const std::pair<std::string, std::vector<std::string>> rows[] = {{"", {}},
                                                                   {"1\n", {"1"}},
                                                                   {"1\n2\n3\n", {"2", "3"}},
                                                                   {"1\n2\n3", {"2", "3"}},
                                                                   {"1\n" + far + "\n3\n", {far, "3"}}};
  for (const auto& [text, expected] : rows) {
    folder.write("a", text);
    LogReader reader(folder.path("a"));
    std::vector<std::string> lines;
    const auto print = [&](std::string_view line) { lines.emplace_back(line); };
    reader.print_new(2, print);
    reader.finish(print);
    EXPECT_EQ(lines, expected) << text.substr(0, 20);
  }
}

class SlurmFollowLogs : public testing::Test {
 protected:
  /// Shows the logs. Lines of standard error begin with "!", and `at_flush` is called between.
  bool show(const std::string& word, bool follows = false, std::optional<int64_t> num_lines = {}) {
    const LogsRequest request{.target = require_job_targets(word).at(0),
                              .follows = follows,
                              .num_lines = num_lines,
                              .first_pause = std::chrono::milliseconds(1),
                              .longest_pause = std::chrono::milliseconds(1)};
    lines_.clear();
    heard_ = {};
    return show_logs(
        request, slurm_.environment(),
        {.print =
             [&](const LogLine& line) {
               lines_.push_back((line.is_error ? "!" : "") + std::string(line.prefix) + std::string(line.text));
             },
         .flush = [&] { return at_flush_ ? at_flush_() : true; }},
        heard_.tell());
  }
  std::string job(const std::string& state, const std::string& numbers = "JobId=7", const std::string& out = "o",
                  const std::string& reason = "None") const {
    return test::scontrol_job(numbers, state,
                              "   NodeList=n1\n   WorkDir=" + slurm_.path() + "\n   StdErr=" + slurm_.path("e") +
                                  "\n   StdOut=" + slurm_.path(out) + "\n",
                              reason);
  }

  test::FakeSlurm slurm_;
  test::Heard heard_;
  std::vector<std::string> lines_;
  std::function<bool()> at_flush_;
};

TEST_F(SlurmFollowLogs, ShowBothFilesAndThoseOfRanks) {
  slurm_.make_scontrol({job("RUNNING")});
  slurm_.write("o", "1\n2\nno end");
  slurm_.write("e", "error\n");
  for (const auto* rank : {"10", "2"}) slurm_.write(std::string("slurm-7-rank") + rank + ".out", "hello\n");
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("!error", "1", "2", "no end", "rank 2: hello", "rank 10: hello"));
  EXPECT_TRUE(show("7", false, 1));
  EXPECT_THAT(lines_, ElementsAre("!error", "no end", "rank 2: hello", "rank 10: hello"));
  EXPECT_THAT(heard_.yoke, IsEmpty());
}

TEST_F(SlurmFollowLogs, GoOnUntilTheJobHasEnded) {
  slurm_.make_scontrol({job("PENDING", "JobId=7", "o", "Priority"), job("RUNNING"), job("RUNNING"), job("COMPLETED")});
  slurm_.write("e", "");
  int num_flushes = 0;
  at_flush_ = [&] {
    append(slurm_.path("o"), "line " + std::to_string(num_flushes++) + "\n");  // one before the job starts
    return true;
  };
  EXPECT_TRUE(show("7", true, 1));
  EXPECT_EQ(lines_.size(), static_cast<size_t>(num_flushes) - 1) << "the last flush comes after the last line";
  EXPECT_EQ(lines_.at(0), "line 0");
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("job 7 waits in the queue (Priority): ")));
  EXPECT_EQ(slurm_.calls("scontrol").size(), 4U);
}

TEST_F(SlurmFollowLogs, GoOnWhileSlurmctldDoesNotAnswer) {
  slurm_.make_scontrol({job("RUNNING")});
  slurm_.write("o", "1\n");
  slurm_.write("e", "");
  at_flush_ = [&] {
    slurm_.make_failing("scontrol", test::kNoController);
    return heard_.yoke.empty();  // the reader goes away
  };
  EXPECT_TRUE(show("7", true));
  EXPECT_THAT(lines_, ElementsAre("1"));
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("; following the files meanwhile")));
}

TEST_F(SlurmFollowLogs, NameTheTasksOfAnArray) {
  slurm_.make_scontrol({job("COMPLETED", "JobId=8 ArrayJobId=7 ArrayTaskId=1", "o1") +
                        job("COMPLETED", "JobId=7 ArrayJobId=7 ArrayTaskId=2", "o2")});
  for (const auto* file : {"o1", "o2", "e"}) slurm_.write(file, "x\n");
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("!7_1: x", "7_1: x", "7_2: x"));
  EXPECT_TRUE(show("7_[2-9]"));
  EXPECT_THAT(lines_, ElementsAre("!x", "x"));
}

TEST_F(SlurmFollowLogs, SayWhyThereIsNothing) {
  slurm_.make_scontrol({job("PENDING", "JobId=7", "o", "JobHeldUser")});
  EXPECT_THAT(
      test::message_of([&] { show("7"); }, ErrorCode::kNotFound),
      testing::AllOf(HasSubstr("job 7 waits in the queue (JobHeldUser)"), HasSubstr("logs -f 7` waits for it")));
  slurm_.make_scontrol({test::scontrol_job("JobId=7", "CANCELLED", "   StdOut=" + slurm_.path("o") + "\n")});
  slurm_.write("o.0", "");
  EXPECT_FALSE(show("7"));
  EXPECT_THAT(heard_.yoke,
              ElementsAre("job 7 is CANCELLED: it ended before it started, so it has printed nothing; what "
                          "it printed before is in " +
                          slurm_.path("o.0")));
  slurm_.make_scontrol({job("COMPLETED")});
  EXPECT_FALSE(show("7"));
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("the output of job 7: "), HasSubstr("the output of job 7: ")));
}

TEST_F(SlurmFollowLogs, AreFoundAfterSlurmHasForgottenTheJob) {
  EXPECT_THAT(test::message_of([&] { show("7"); }, ErrorCode::kNotFound),
              testing::AllOf(HasSubstr("Slurm knows no job 7: it forgets jobs"), HasSubstr("keeps no accounts")));
  slurm_.write("slurm-7.out", "old\n");
  slurm_.write("slurm-77.out", "other\n");
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("old"));
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("; this is what the files in this folder say")));
  // The note of `yoke slurm submit` counts more, and the accounts still more.
  slurm_.write("noted", "noted\n");
  slurm_.write("state/yoke/slurm/7/job.json",
               R"({"folder": ")" + slurm_.path() + R"(", "output": ")" + slurm_.path("noted") + R"("})");
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("noted"));
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("the files say that `yoke slurm submit` has noted")));
  slurm_.write("recorded", "recorded\n");
  slurm_.make("sacct", "echo '7|7|COMPLETED|0:0|1000|1000|1060|1063|3|5|1||4|16M||00:01|0||||||n1|main|ada|None|" +
                           slurm_.path() + "|t|sbatch -o recorded t'");
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("recorded"));
  EXPECT_THAT(heard_.yoke, IsEmpty());
  // A slurmctld that is down does not hide the files.
  slurm_.make_failing("scontrol", test::kNoController);
  EXPECT_TRUE(show("7"));
  EXPECT_THAT(lines_, ElementsAre("noted"));
  EXPECT_THAT(heard_.yoke, ElementsAre(HasSubstr("scontrol cannot reach slurmctld")));
  EXPECT_EQ(test::error_of([&] { show("9"); }).code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace yoke::slurm
