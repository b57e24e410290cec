// Tests how the output of ranks is shown.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tests/run/launch.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Checks that each line is a complete line of one rank. Returns the number of lines of each rank.
std::map<std::string, int> whole_lines(const std::string& text, size_t length) {
  std::map<std::string, int> counts;
  for (const auto& line : lines_of(text)) {
    const auto end = line.find(']');
    EXPECT_TRUE(line.starts_with("[") && end != line.npos) << line.substr(0, 60);
    const auto rank = line.substr(1, end - 1);
    const auto body = line.substr(end + 2);
    EXPECT_EQ(body.size(), length - 1) << line.substr(0, 60);
    EXPECT_TRUE(body.starts_with("r" + rank + "-") && body.ends_with("#")) << line.substr(0, 60);
    ++counts[rank];
  }
  return counts;
}

TEST(Output, LinesOfEightRanksAreNeverTorn) {
  const int kLines = kIsSanitized ? 1'000 : 10'000;
  const auto result = run(yoke_run({"-n", "8", "--", kRank, "lines", std::to_string(kLines), "500"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto counts = whole_lines(result.out, 500);
  EXPECT_EQ(counts.size(), 8u);
  for (const auto& [rank, count] : counts) EXPECT_EQ(count, kLines) << "rank " << rank;
}

TEST(Output, OneFileForOutputAndErrorIsNotTornEither) {
  auto options = yoke_run({"-n", "2", "--", kRank, "stderr-and-stdout", "500"});
  options.join_outputs = true;
  const auto result = run(options);
  const auto counts = whole_lines(result.out, 2000);
  EXPECT_EQ(counts.at("0"), 1000);
  EXPECT_EQ(counts.at("1"), 1000);
}

TEST(Output, ErrorsGoToStandardError) {
  const auto result = run(yoke_run_shell(2, "echo out; echo err >&2"));
  EXPECT_THAT(lines_of(result.out), testing::UnorderedElementsAre("[0] out", "[1] out"));
  EXPECT_THAT(lines_of(result.err), testing::UnorderedElementsAre("[0] err", "[1] err"));
}

TEST(Output, TheLastLineNeedsNoEnd) {
  EXPECT_EQ(run(yoke_run_shell(2, "[ $RANK = 1 ] && printf partial; true")).out, "[1] partial\n");
}

TEST(Output, OneRankWritesAsIfAlone) {
  EXPECT_EQ(run(yoke_run_shell(1, "printf 'a\\rb'")).out, "a\rb");
  EXPECT_EQ(run(yoke_run({"-n", "2", "--no-prefix", "--", "echo", "x"})).out, "x\nx\n");
}

TEST(Output, OfAProgressBarOnlyTheEndIsKept) {
  EXPECT_EQ(run(yoke_run_shell(2, "[ $RANK = 0 ] && printf '1%%\\r50%%\\r100%%\\nend\\r\\n'; true")).out,
            "[0] 100%\n[0] end\n");
}

TEST(Output, OnATerminalProgressIsALineThatMoves) {
  auto options = yoke_run_shell(2, "[ $RANK = 0 ] || exit 0; printf '\\r 50%%'; read wait; echo; echo done");
  options.on_terminal = true;
  options.environment = {{"NO_COLOR", "1"}};
  options.argv = {"sh", "-c",  "mkfifo \"$0\"; exec \"$@\" < \"$0\"",
                  "",   kYoke, "run",
                  "-n", "2",   "--",
                  "sh", "-c",  options.argv.back()};
  TemporaryFolder folder;
  options.argv[3] = folder.path("input");
  Command command(options);
  const auto input = folder.path("input");
  ASSERT_TRUE(wait_until([&] { return access(input.c_str(), F_OK) == 0; }));
  const UniqueFd feed(open(input.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(command.wait_for_output("[0]  50%")) << command.out();
  EXPECT_THAT(command.out(), Not(HasSubstr("50%\r\n"))) << "it is not a line yet";
  ASSERT_EQ(write(feed.value(), "\n", 1), 1);
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\r\x1b[K[0]  50%\r\n"));
  EXPECT_THAT(result.out, HasSubstr("[0] done\r\n"));
}

TEST(Output, ColoursOnTerminalsOnlyAndNotAgainstTheWill) {
  auto options = yoke_run({"-n", "2", "--", "echo", "x"});
  options.without = {"NO_COLOR"};
  EXPECT_THAT(run(options).out, Not(HasSubstr("\x1b[")));
  options.on_terminal = true;
  EXPECT_THAT(run(options).out, HasSubstr("\x1b[32m[1]\x1b[0m x"));
  options.environment = {{"NO_COLOR", "1"}};
  EXPECT_THAT(run(options).out, Not(HasSubstr("\x1b[3")));
  options.argv.insert(options.argv.begin() + 2, "--color=always");
  options.on_terminal = false;
  EXPECT_THAT(run(options).out, HasSubstr("\x1b[32m[1]\x1b[0m x"));
  options.argv[2] = "--color=blue";
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("--color blue: give auto, always or never"));
}

TEST(Output, RanksAreToldOfTheTerminal) {
  auto options = yoke_run_shell(2, "echo terminal=$YOKE_TERMINAL.");
  EXPECT_THAT(run(options).out, HasSubstr("[0] terminal=."));
  options.on_terminal = true;
  EXPECT_THAT(run(options).out, HasSubstr("terminal=1."));
}

TEST(Output, AReaderThatLeavesDoesNotEndTheJob) {
  TemporaryFolder folder;
  auto options =
      yoke_run_shell(2,
                     "seq 100000; seq 100000 >&2; touch done-$RANK; until [ -e done-0 ]; do sleep 0.05; done; "
                     "exit $RANK");  // lets rank 0 finish before the failure of rank 1 ends it
  options.folder = folder.path();
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("\n"));
  command.close_output();
  EXPECT_EQ(command.wait().exit_code, 1) << "still supervised";
  for (const char* file : {"done-0", "done-1"}) EXPECT_EQ(access(folder.path(file).c_str(), F_OK), 0) << file;
}

TEST(Output, OtherClosedStreamsAreNoReasonToFail) {
  auto options = yoke_run_shell(2, "echo x; echo y >&2");
  options.argv.insert(options.argv.begin(), {"sh", "-c", "exec \"$@\" <&- 2>&-", "sh"});
  EXPECT_EQ(run(options).exit_code, 0);
}

TEST(Output, AReaderThatDoesNotReadDoesNotBlockSignals) {
  auto options = yoke_run_shell(2, "yes");
  options.leave_unread = true;
  Command command(options);
  ASSERT_TRUE(wait_until([&] { return guardian_of(command.pid()).has_value(); }));
  const auto full = [&] {  // the pipe is full, so the launcher waits for its reader
    pollfd ready{STDIN_FILENO, 0, 0};
    return poll(&ready, 1, 200) == 0;
  };
  full();
  command.signal(SIGTERM);
  // The reader never reads, so the launcher must not wait long for it.
  ASSERT_TRUE(wait_until([&] { return !guardian_of(command.pid()).has_value(); }));
  EXPECT_EQ(command.wait().exit_code, 143);
}

TEST(Output, LongLinesAreCutAndNothingIsLost) {
  const auto result = run(yoke_run_shell(2, "[ $RANK = 0 ] && head -c 3000000 /dev/zero | tr '\\0' x; true"));
  EXPECT_EQ(lines_of(result.out).size(), 3u);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'x'), 3'000'000);
}

TEST(Output, ATerminalSaysHowTheJobIs) {
  const TemporaryFolder folder;
  auto options = yoke_run_shell(2, "until [ -e go ]; do sleep 0.05; done");
  options.folder = folder.path();
  options.on_terminal = true;
  Command command(options);
  EXPECT_TRUE(command.wait_for_output("yoke run: 2 of 2 ranks up, ")) << "it comes after a second: " << command.out();
  folder.write("go", "");
  const auto result = command.wait();
  EXPECT_THAT(result.out, testing::EndsWith("\x1b[K")) << "and it is taken away at the end: " << result.out;
  EXPECT_THAT(run(yoke_run_shell(2, "sleep 1.5; echo done")).err, testing::IsEmpty());
  auto quiet = yoke_run({"-n", "2", "-q", "--", "sleep", "1.5"});
  quiet.on_terminal = true;
  EXPECT_THAT(run(quiet).out, testing::IsEmpty());
}

TEST(Output, InANotebookEachChangeOfTheStatusIsALine) {
  // Rank 1 waits for over two seconds after the line has come, in which a terminal's would be drawn again.
  const TemporaryFolder folder;
  auto options =
      yoke_run_shell(2,
                     "until [ -e go ]; do sleep 0.05; done; [ $RANK = 1 ] || until [ -e end ]; do sleep 0.05; done; "
                     "[ $RANK = 0 ] || sleep 2.2");
  options.folder = folder.path();
  options.on_terminal = true;
  options.environment = {{"TERM", "xterm-color"}, {"JPY_PARENT_PID", "1"}};
  Command command(options);
  EXPECT_TRUE(command.wait_for_output("yoke run: 2 of 2 ranks up, ")) << command.out();
  folder.write("go", "");
  EXPECT_TRUE(command.wait_for_output("yoke run: 1 of 2 ranks up, ")) << command.out();
  folder.write("end", "");
  const auto lines = lines_of(command.wait().out);
  ASSERT_EQ(lines.size(), 2u) << testing::PrintToString(lines);
  EXPECT_THAT(lines[0], testing::MatchesRegex("yoke run: 2 of 2 ranks up, [0-9.]+ s\r?"));
  EXPECT_THAT(lines[1], testing::MatchesRegex("yoke run: 1 of 2 ranks up, [0-9.]+ s\r?"));
}

TEST(Output, APipeOfANotebookHasTheStatusIfTheRanksDoNotWriteIntoIt) {
  const TemporaryFolder folder;
  auto waiting = yoke_run_shell(2, "until [ -s status ]; do sleep 0.05; done");
  waiting.argv.insert(waiting.argv.begin(), {"sh", "-c", "\"$@\" 2>&1 >/dev/null | cat > status", "sh"});
  waiting.folder = folder.path();
  waiting.environment = {{"JPY_PARENT_PID", "1"}};
  EXPECT_EQ(run(waiting).exit_code, 0);
  EXPECT_THAT(read_file(folder.path("status")), testing::MatchesRegex("yoke run: 2 of 2 ranks up, [0-9.]+ s\n"));

  auto options = yoke_run_shell(2, "sleep 1.5; echo done");
  options.environment = waiting.environment;
  options.join_outputs = true;
  EXPECT_THAT(lines_of(run(options).out), testing::UnorderedElementsAre("[0] done", "[1] done"));
  auto quiet = yoke_run({"-n", "2", "-q", "--", "sleep", "1.5"});
  quiet.environment = options.environment;
  EXPECT_THAT(run(quiet).err, testing::IsEmpty());
}

TEST(Output, TheStatusLineIsTakenAwayBeforeALineIsPrinted) {
  // Rank 0 prints after the status line has appeared. The terminal does not echo, so all text after the status line
  // comes from the launcher.
  auto options = yoke_run_shell(2, "[ $RANK = 1 ] || { read go; echo out; echo err >&2; }");
  options.argv.insert(options.argv.begin(), {"sh", "-c", "mkfifo input; exec \"$@\" <> input", "sh"});
  const TemporaryFolder folder;
  options.folder = folder.path();
  options.on_terminal = true;
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("ranks up, ")) << command.out();
  folder.write("input", "go\n");
  const auto out = command.wait().out;
  for (const char* line : {"out\r\n", "err\r\n"}) EXPECT_THAT(out, HasSubstr(line));
  constexpr std::string_view kStatus = "yoke run: ";
  for (auto at = out.find(kStatus); at != out.npos; at = out.find(kStatus, at + 1)) {
    EXPECT_THAT(out.substr(out.find(" s", at)), testing::StartsWith(" s\r\x1b[K")) << out;
  }
}

}  // namespace
}  // namespace yoke::test
