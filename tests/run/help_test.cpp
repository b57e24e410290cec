// Tests help, man pages and error messages for every option of every command. These texts have one source, so one test
// covers all commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "tests/run/commands.h"
#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

Result yoke_with_columns(std::vector<std::string> words, const std::string& columns = "100") {
  words.insert(words.begin(), kYoke);
  return run({.argv = std::move(words), .environment = {{"COLUMNS", columns}}});
}

/// The command that prints the man page of a name of commands().
std::vector<std::string> page_of(const std::string& command) {
  auto words = words_with(command, {});
  words.insert(words.begin(), "man");
  return words;
}

/// Maps each option to its value in the man page, such as "--bind" to "auto|none|..."; a flag has an empty value.
std::map<std::string, std::string> values_in_man_page(const std::string& command) {
  const auto page = std::regex_replace(yoke_with_columns(page_of(command)).out, std::regex(R"(\\-)"), "-");
  const std::regex entry(R"(^(?:\\fB\S+\\fR, )*\\fB(--?\S+)\\fR(?: \\fI(.*)\\fR)?$)");
  std::map<std::string, std::string> values;
  std::smatch match;
  for (const auto& line : lines_of(page.substr(page.find(".SH OPTIONS")))) {
    if (std::regex_match(line, match, entry)) values[match[1]] = match[2];
  }
  return values;
}

TEST(Help, ManPagesHaveTheSameValuesForOptions) {
  ASSERT_GE(commands().size(), 18);
  for (const auto& command : commands()) {
    auto values = values_in_man_page(command);
    const std::regex entry(R"(^  (?:--?[\w-]+,)*(--?[\w-]+)(.*)$)");
    std::smatch match;
    for (const auto& line : lines_of(yoke_with_columns(words_with(command, {"--help"})).out)) {
      if (line == "Examples:") break;
      if (!std::regex_match(line, match, entry)) continue;
      const std::string name = match[1], rest = match[2].str() + " ";
      ASSERT_TRUE(values.contains(name)) << command << name;
      const auto& value = values[name];
      EXPECT_THAT(rest, StartsWith(value.empty() ? " " : " " + value)) << command << name;
      EXPECT_THAT(rest.substr(value.empty() ? 0 : value.size() + 1), ContainsRegex("^[ =]")) << command << name;
      values.erase(name);
    }
    EXPECT_THAT(values, IsEmpty()) << command;
  }
  EXPECT_EQ(values_in_man_page("run").at("--nnodes"), "N|MIN:MAX");
}

TEST(Help, OfEveryCommandHasExamplesAndExitStatuses) {
  for (const auto& command : commands()) {
    const auto help = yoke_with_columns(words_with(command, {"--help"})).out;
    EXPECT_THAT(help, AllOf(HasSubstr("Examples:\n"), HasSubstr("xit status"))) << command;
    EXPECT_THAT(yoke_with_columns(page_of(command)).out, AllOf(HasSubstr(".SH EXAMPLES"), HasSubstr(".SH EXIT STATUS")))
        << command;
  }
  EXPECT_THAT(yoke_with_columns({"--help"}).out, HasSubstr("Exit status of errors: 64 "));
}

TEST(Help, FitsNarrowTerminals) {
  for (auto command : commands()) {
    bool is_example = false;
    for (const auto& line : lines_of(yoke_with_columns(words_with(command, {"--help"}), "60").out)) {
      if (line == "Examples:") is_example = true;
      if (line.empty()) is_example = false;
      const bool is_name = line.starts_with("  ") && line[2] != ' ';  // an option and its value, which is not broken
      const bool is_one_word = line.find(' ', line.find_first_not_of(' ')) == line.npos;
      if (is_example || is_name || is_one_word) continue;
      EXPECT_LE(line.size(), 60) << command;
    }
  }
}

TEST(Messages, OfNonsenseNameTheOptionAndWhatMayBeGiven) {
  const std::regex checked(R"((SECONDS|PERCENT|N|RANK|PORT|PID|[a-z-]+(\|[a-z-]+)+|auto\|gpu\|cpu\|N|auto\|none\|.*))");
  int num_checked = 0;
  for (const auto& command : commands()) {
    for (const auto& [name, value] : values_in_man_page(command)) {
      if (!std::regex_match(value, checked) || !name.starts_with("--")) continue;
      const auto result = yoke_with_columns(words_with(command, {name + "=nonsense"}));
      EXPECT_EQ(result.exit_code, 64) << command << name;
      EXPECT_THAT(result.err, StartsWith("yoke " + command + ": " + name + " nonsense: give "));
      ++num_checked;
    }
  }
  EXPECT_GT(num_checked, 25);
}

TEST(Messages, OfRangesAndWordsAreReadable) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } cases[] = {
      {{"run", "--heartbeat-timeout", "1", "true"},
       "yoke run: --heartbeat-timeout 1: give 2 to 1000000 seconds; see `yoke run --help`\n"},
      {{"run", "--max-restarts", "-1", "true"},
       "yoke run: --max-restarts -1: give 0 to 1000000, or also the steps of the training within which they count, "
       "such as 3/1000steps; see `yoke run --help`\n"},
      {{"run", "--master-port", "70000", "true"},
       "yoke run: --master-port 70000: give 0 to 65535; see `yoke run --help`\n"},
      {{"run", "--max-restarts", "1.5", "true"},
       "yoke run: --max-restarts 1.5: give 0 to 1000000, or also the steps of the training within which they count, "
       "such as 3/1000steps; see `yoke run --help`\n"},
      {{"run", "-n", "gpus", "true"},
       "yoke run: -n gpus: give auto, gpu, cpu or N (did you mean `gpu`?); see `yoke run --help`\n"},
      {{"run", "--grace"}, "yoke run: --grace needs a value: SECONDS; see `yoke run --help`\n"},
      {{"ls", "--vendor", "nvida"},
       "yoke devices: --vendor nvida: give nvidia, amd or cpu (did you mean `nvidia`?); see `yoke devices --help`\n"},
      {{"watch", "--goal", "101", "true"}, "yoke watch: --goal 101: give 0 to 100 percent; see `yoke watch --help`\n"},
      {{"completion", "zhs"},
       "yoke completion: SHELL zhs: give bash, zsh or fish (did you mean `zsh`?); see `yoke completion --help`\n"},
      {{"jobs", "--json=x"}, "yoke jobs: --json takes no value; see `yoke jobs --help`\n"},
      {{"jobs", "now"}, "yoke jobs: unexpected argument: now; see `yoke jobs --help`\n"},
      {{"./prog"}, "yoke: no command `./prog` (did you mean `yoke run ./prog`?); see `yoke --help`\n"},
      {{"devices", "--mineral="}, "yoke devices: unknown option --mineral; see `yoke devices --help`\n"},
      {{"run", "--mineral", "", "true"}, "yoke run: unknown option --mineral; see `yoke run --help`\n"},
      {{"run", "-n", "2", "--watch", "true"},
       "yoke run: unknown option --watch: a program with a train::Run says by itself what slows its steps, after each "
       "epoch (docs/training-loop.md), and `yoke watch` runs a program and tells how well it used its devices; see "
       "`yoke "
       "run --help`\n"},
      {{"--verbose-ish"}, "yoke: unknown option --verbose-ish; see `yoke --help`\n"},
  };
  for (const auto& one : cases) {
    const auto result = yoke_with_columns(one.words);
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_EQ(result.err, one.message);
  }
}

TEST(Messages, BeginWithTheCommandOnce) {
  const std::vector<std::vector<std::string>> cases = {
      {"run"},
      {"run", "--nnodes", "0", "true"},
      {"run", "--grace="},
      {"run", "--hosts=", "true"},
      {"run", "--color", "blue", "true"},
      {"run", "--json", "true"},
      {"run", "--tee", "9", "true"},
      {"run", "--local-ranks-filter", "a", "true"},
      {"run", "--signals-to-handle", "SIGFOO", "true"},
      {"run", "--hostfile", "/no/such/file", "true"},
      {"run", "--hosts", "a", "--hostfile", "b", "true"},
      {"run", "no-such-program"},
      {"run", "/"},
      {"train"},
      {"train", "no-such-recipe"},
      {"devices", "--json", "--csv"},
      {"devices", "--json", "--list"},
      {"devices", "--record", "a", "--replay", "b"},
      {"devices", "--vendor", "amd", "--replay", "b"},
      {"devices", "--watch", "0"},
      {"devices", "-d", "none-such"},
      {"devices", "--replay", "/no/such/file"},
      {"devices", "--sysroot", "/no/such/folder"},
      {"bind", "--cpus", "x"},
      {"bind", "--topology", "/no/such/file"},
      {"kill"},
      {"kill", "--any", "--mine"},
      {"kill", "--force", "--wait", "0", "--mine"},
      {"kill", "4194301", "--yes"},
      {"kill", "--signal", "FOO", "1"},
      {"logs", "no-such-job"},
      {"stop", "no-such-job"},
      {"stack", "no-such-job"},
      {"metrics", "--max-age", "1"},
      {"metrics", "--serve=nowhere"},
      {"new"},
      {"new", "/"},
      {"ps", "--json", "--csv"},
      {"ps", "-i", "none-such"},
      {"topo", "--topology", "/no/such/file"},
      {"topo", "--topology", "a", "--vendor", "amd"},
      {"visible", "--", "true"},
      {"visible", "--format", "index"},
      {"visible", "--set", "none-such"},
      {"visible", "--set", "none", "--", "no-such-program"},
      {"watch"},
      {"watch", "no-such-program"},
      {"completion"},
      {"man", "no-such-command"},
      {"doctor", "now"},
      {"top", "now"},
      {"top", "--once", "--interval", "1"},
  };
  for (const auto& words : cases) {
    const auto result = yoke_with_columns(words);
    const auto& command = words.front();
    EXPECT_NE(result.exit_code, 0) << testing::PrintToString(words);
    ASSERT_THAT(result.err, Not(IsEmpty())) << testing::PrintToString(words);
    for (const auto& line : lines_of(result.err)) {
      EXPECT_THAT(line, AllOf(StartsWith("yoke " + command + ": "), Not(HasSubstr(": " + command + ": "))));
    }
  }
}

TEST(Hints, ComeWithAFailureThatLooksMistyped) {
  TemporaryFolder folder;
  folder.write("train", "#!/bin/sh\n[ $# -le 1 ]\n", true);
  const auto yoke_here = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {kYoke, "run"});
    return run({.argv = std::move(words), .folder = folder.path()});
  };
  const auto misplaced = yoke_here({"./train", "-n", "2"});
  EXPECT_EQ(misplaced.exit_code, 1);
  EXPECT_THAT(misplaced.err, HasSubstr("\nyoke run: -n was given to ./train; options of `yoke run` come before the "
                                       "program: yoke run -n ... ./train\n"));
  EXPECT_THAT(yoke_here({"-n", "1", "./train", "-n", "2"}).err, Not(HasSubstr("was given to")));
  EXPECT_THAT(yoke_here({"./train", "--epochs", "2"}).err, Not(HasSubstr("was given to")));
  EXPECT_THAT(yoke_here({"true", "-n", "2"}).err, IsEmpty());

  const auto here = yoke_here({"train"});
  EXPECT_EQ(here.exit_code, 127);
  EXPECT_THAT(here.err, HasSubstr("for the one in this folder: yoke run ./train\n"));
  EXPECT_THAT(yoke_here({"trains"}).err, Not(HasSubstr("in this folder")));
}

}  // namespace
}  // namespace yoke::test
