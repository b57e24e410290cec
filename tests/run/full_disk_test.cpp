// Tests output that cannot be written: to a full disk, beyond the limit on file sizes, and to a closed stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr int kUnavailable = 75;

/// Starts `command` by a shell, which executes `before` and then `exec COMMAND REDIRECTION`.
CommandOptions in_shell(const std::string& before, CommandOptions command, const std::string& redirection) {
  const auto script = before + " exec \"$@\" " + redirection;
  command.argv.insert(command.argv.begin(), {"sh", "-c", script, "sh"});
  return command;
}

/// The limit of 2048 blocks of 512 bytes is 1 MiB, as much as the launcher buffers.
constexpr const char* kFileLimit = "ulimit -f 2048;";

TEST(FullDisk, FailsAJobThatSucceeded) {
  const auto result = run(in_shell("", yoke_run({"-n", "2", "--", "echo", "hi"}), "> /dev/full"));
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("yoke run: cannot write standard output: No space left on device; the job goes "
                              "on, up to 1 MiB is kept meanwhile, and writing is tried again\n"),
                    EndsWith("yoke run: 2 lines are missing from standard output: No space left on "
                             "device\n")));
}

TEST(FullDisk, AFailingJobKeepsItsStatus) {
  const auto result = run(in_shell("", yoke_run_shell(2, "echo hi; [ $RANK = 0 ] || sleep 60; exit 3"), "> /dev/full"));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("missing from standard output: No space left on device\nyoke run: rank 0 (pid "),
                    EndsWith("exited with code 3; stopped the other rank\n")));
}

TEST(FullDisk, OfStandardErrorFailsItToo) {
  EXPECT_EQ(run(in_shell("", yoke_run_shell(2, "echo hi >&2"), "2> /dev/full")).exit_code, kUnavailable);
  EXPECT_EQ(run(in_shell("", yoke_run_shell(2, "echo hi"), "2> /dev/full")).exit_code, 0) << "nothing was to be said";
}

TEST(FullDisk, LinesWaitUntilThereIsRoom) {
  const TemporaryFolder folder;
  auto options = in_shell(std::string("truncate -s 1M out;") + kFileLimit,
                          yoke_run_shell(2, "echo first; until [ -e go ]; do sleep 0.05; done; echo last"), ">> out");
  options.folder = folder.path();
  Command command(options);
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("File too large") != std::string::npos; }))
      << command.err();
  std::filesystem::resize_file(folder.path("out"), 0);  // makes room on the disk
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("again; nothing is") != std::string::npos; }))
      << command.err();
  folder.write("go", "");
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line : {"[0] first\n", "[1] first\n", "[0] last\n", "[1] last\n"}) {
    EXPECT_THAT(slurp(folder.path("out")), HasSubstr(line));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("cannot write standard error")));
}

TEST(FullDisk, OfALogFailsTheJobAndNotTheRanks) {
  const TemporaryFolder folder;
  auto options = in_shell(kFileLimit,
                          yoke_run({"-n", "2", "--log-dir", "logs", "--tee", "0:1", "--", "sh", "-c",
                                    "[ $RANK = 1 ] || seq 300000; echo end"}),
                          "");
  options.folder = folder.path();
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("yoke run: cannot write the log "), HasSubstr("/0/stdout.log: File too large"),
                    HasSubstr("lines are missing from the log ")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] 300000\n"), HasSubstr("[0] end\n"), HasSubstr("[1] end\n")));
}

TEST(FullDisk, ALogIsContinuedOnceThereIsRoom) {
  const TemporaryFolder folder;
  auto options = in_shell(kFileLimit,
                          yoke_run({"-n", "1", "--log-dir", "logs", "--tee", "1", "--", "sh", "-c",
                                    "seq 180000; until [ -e go ]; do sleep 0.05; done; echo end"}),
                          "");
  options.folder = folder.path();
  Command command(options);
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("File too large") != std::string::npos; }))
      << command.err();
  ASSERT_TRUE(command.wait_for_output("\n180000\n"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("logs"))) {
    if (entry.path().filename() == "stdout.log") std::filesystem::resize_file(entry.path(), 0);
  }
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("again; nothing is") != std::string::npos; }))
      << command.err();
  folder.write("go", "");
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("logs"))) {
    if (entry.path().filename() == "stdout.log") {
      EXPECT_THAT(slurp(entry.path()), EndsWith("\n180000\nend\n"));
    }
  }
}

// As without yoke, a rank that writes beyond the limit on file sizes gets SIGXFSZ, which ends it by default.
TEST(FullDisk, RanksHaveTheirFileLimitAsItWas) {
  const TemporaryFolder folder;
  auto options = in_shell(kFileLimit, yoke_run_shell(2, "exec head -c 2000000 /dev/zero > own-$RANK"), "");
  options.folder = folder.path();
  EXPECT_EQ(run(options).exit_code, 128 + SIGXFSZ);
  options = in_shell(std::string("trap '' XFSZ;") + kFileLimit,
                     yoke_run_shell(2, "exec head -c 2000000 /dev/zero > own-$RANK"), "");
  options.folder = folder.path();
  EXPECT_EQ(run(options).exit_code, 1) << "ignored, it stays so";
}

TEST(FullDisk, AClosedStandardOutputIsLikeOne) {
  const auto result = run(in_shell("", yoke_run({"-n", "2", "--", "echo", "hi"}), ">&-"));
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_THAT(result.err, HasSubstr("2 lines are missing from standard output: Bad file descriptor"));
  EXPECT_EQ(run(in_shell("", yoke_run({"-n", "2", "--", "true"}), ">&-")).exit_code, 0) << "nothing was to be written";
  EXPECT_EQ(run(in_shell("", yoke_run({"-n", "2", "--", "sh", "-c", "echo a >&2"}), ">&- 2>/dev/null")).exit_code, 0);
}

TEST(FullDisk, EveryCommandSaysIt) {
  const std::vector<std::vector<std::string>> commands = {{"run", "--plan", "--", "x"},
                                                          {"run", "--plan", "--json", "--", "x"},
                                                          {"run", "--help"},
                                                          {"--help"},
                                                          {"--version"},
                                                          {"devices"},
                                                          {"devices", "--json"},
                                                          {"devices", "--watch", "1"},
                                                          {"ps", "--json"},
                                                          {"metrics"},
                                                          {"doctor"},
                                                          {"topo"},
                                                          {"top", "--once"},
                                                          {"top", "--json"},
                                                          {"visible"},
                                                          {"bind"},
                                                          {"jobs"},
                                                          {"jobs", "--json"},
                                                          {"man"},
                                                          {"man", "run"},
                                                          {"completion", "bash"},
                                                          {"train", "--list"}};
  for (auto words : commands) {
    const auto text = testing::PrintToString(words);
    words.insert(words.begin(), kYoke);
    for (const char* redirection : {"> /dev/full", ">&-"}) {
      const auto result = run(in_shell("", {.argv = words}, redirection));
      EXPECT_EQ(result.exit_code, kUnavailable) << text << redirection;
      EXPECT_THAT(result.err, EndsWith(redirection[1] == '&' ? "writing the output: Bad file descriptor\n"
                                                             : "writing the output: No space left on device\n"))
          << text;
    }
  }
}

}  // namespace
}  // namespace yoke::test
