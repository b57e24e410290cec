// Tests `yoke top` without a terminal: it prints one plain page, or JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/top/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CommandOptions top(const Machine& machine, std::vector<std::string> words) {
  words.insert(words.begin(), {kYoke, "top"});
  return {.argv = words, .environment = machine.environment(), .without = {"COLUMNS"}};
}

void expect_plain(const std::string& text) {
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << int{c};
}

TEST(TopPrinted, WithoutATerminalItIsOnePlainPage) {
  std::vector<Sleeper> processes;
  for (int i = 0; i < 40; ++i) processes.emplace_back("\x1b[31mtrain");
  const Machine machine(16, processes);
  const auto result = run(top(machine, {}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_plain(result.out);
  for (int i = 0; i < 16; ++i) EXPECT_THAT(result.out, HasSubstr(fmt::format("\n {:>3} A100-SXM4-80GB ", i)));
  for (const auto& process : processes) EXPECT_THAT(result.out, HasSubstr(fmt::format("\n{:>7} ", process.pid())));
  EXPECT_THAT(result.out, AllOf(HasSubstr("?[31mtrain 1000"), Not(HasSubstr("help"))));
}

TEST(TopPrinted, OnceIsPlainOnATerminalToo) {
  const Machine machine(2);
  auto options = top(machine, {"--once"});
  options.on_terminal = true;
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(result.out, HasSubstr("   1 A100"));
}

TEST(TopPrinted, AsWideAsTold) {
  const Machine machine(2);
  auto options = top(machine, {"--once"});
  options.without.clear();
  options.environment.emplace_back("COLUMNS", "160");
  EXPECT_THAT(run(options).out, HasSubstr("ORIGIN"));
  EXPECT_THAT(run(top(machine, {"--once"})).out, Not(HasSubstr("ORIGIN")));
  options.environment.back().second = "99999999999";
  const auto widest = run(options);
  EXPECT_EQ(widest.exit_code, 0) << widest.err;
  EXPECT_THAT(widest.out, HasSubstr("ORIGIN"));
}

TEST(TopPrinted, JsonIsThatOfDevices) {
  std::vector<Sleeper> processes;
  processes.emplace_back();
  const Machine machine(2, processes);
  const auto keys = [&](const std::string& command) {
    auto options = top(machine, {"--json"});
    options.argv[1] = command;
    const auto json = nlohmann::json::parse(run(options).out);
    std::vector<std::string> names;
    for (const auto& [key, value] : json.items()) names.push_back(key);
    for (const auto& [key, value] : json["devices"][0].items()) names.push_back(key);
    for (const auto& [key, value] : json["devices"][0]["processes"][0].items()) names.push_back(key);
    return names;
  };
  EXPECT_EQ(keys("top"), keys("devices"));
}

TEST(TopPrinted, ARecordingIsShownWithItsTime) {
  const Machine machine(2);
  TemporaryFolder folder;
  auto options = top(machine, {"--record", folder.path("machine.jsonl")});
  options.argv[1] = "devices";
  ASSERT_EQ(run(options).exit_code, 0);
  const auto result =
      run({.argv = {kYoke, "top", "--replay", folder.path("machine.jsonl")}, .environment = {{"LC_ALL", "C"}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("recording of 20"), HasSubstr("   1 A100")));
  expect_plain(result.out);
}

TEST(TopPrinted, WrongWordsAreExplained) {
  const Machine machine(1);
  for (const char* interval : {"0", "-1", "nan", "1e9"}) {
    const auto result = run(top(machine, {"--interval", interval}));
    EXPECT_EQ(result.exit_code, 64) << interval;
    EXPECT_THAT(result.err, HasSubstr("--interval"));
  }
}

}  // namespace
}  // namespace yoke::test
