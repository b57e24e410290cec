#include "yoke/stack/tools.h"

#include <gtest/gtest.h>

#include <fstream>

#include "yoke/base/environment.h"

namespace yoke::stack {
namespace {

ToolRun shell(const std::string& script) { return {.argv = {"/bin/sh", "-c", script}}; }

TEST(StackTools, GiveBackWhatTheyPrinted) {
  std::vector<ToolRun> runs;
  for (int i = 0; i < 9; ++i) runs.push_back(shell("echo " + std::to_string(i) + "; echo error >&2; cat; exit 3"));
  runs.push_back({.argv = {"/nonexistent/tool"}});
  run_tools(runs, Environment::of_process());
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(runs[i].text, std::to_string(i) + "\nerror\n");
  EXPECT_EQ(runs[9].text, "");
  EXPECT_FALSE(runs[0].timed_out);
}

TEST(StackTools, ALateOneIsKilledWithItsChildren) {
  std::vector<ToolRun> runs = {shell("trap '' TERM INT; sleep 1000 & echo $!; wait; sleep 1000"), shell("echo quick")};
  // The deadline is ten times what a shell needs on a busy machine to print a line.
  run_tools(runs, Environment::of_process(), {.at_once = 1, .deadline = std::chrono::seconds(3)});
  EXPECT_TRUE(runs[0].timed_out);
  EXPECT_EQ(runs[1].text, "quick\n") << "the next one had its turn";
  const auto child = parse_int(runs[0].text.substr(0, runs[0].text.find('\n')));
  ASSERT_TRUE(child);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string state = "?";
  while (std::chrono::steady_clock::now() < until && !state.empty() && state != "Z" && state != "X") {
    std::ifstream stat("/proc/" + std::to_string(*child) + "/stat");
    std::string pid, name;
    state.clear();
    stat >> pid >> name >> state;
  }
  EXPECT_TRUE(state.empty() || state == "Z" || state == "X") << state;
}

TEST(StackTools, DoNotAskServersForSymbols) {
  auto environment = Environment::of_process();
  environment.set("DEBUGINFOD_URLS", "https://debuginfod.example");
  std::vector<ToolRun> runs = {shell("echo \"<$DEBUGINFOD_URLS>\"")};
  run_tools(runs, environment);
  EXPECT_EQ(runs[0].text, "<>\n");
}

}  // namespace
}  // namespace yoke::stack
