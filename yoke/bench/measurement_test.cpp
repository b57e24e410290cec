#include "yoke/bench/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace yoke::bench {
namespace {

using testing::ElementsAre;

MeasurementOutput run_shell(const std::string& script, std::vector<std::string>& lines) {
  return run({.argv = {"sh", "-c", script}, .environment = {{"PATH", "/usr/bin:/bin"}}},
             [&](const std::string& line) { lines.push_back(line); });
}

TEST(BenchMeasurement, TellsProgressAndKeepsTheFigures) {
  std::vector<std::string> lines;
  const auto output = run_shell("echo 'size 64'; printf 'size '; echo 128; echo '{\"results\": []}'; exit 0", lines);
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.object, "{\"results\": []}");
  EXPECT_THAT(lines, ElementsAre("size 64", "size 128"));
}

TEST(BenchMeasurement, HasTheStatusOfTheProgram) {
  std::vector<std::string> lines;
  EXPECT_EQ(run_shell("exit 3", lines).status, 3);
  EXPECT_EQ(run_shell("kill -KILL $$", lines).status, 128 + SIGKILL);
}

TEST(BenchMeasurement, PassesSignalsOn) {
  std::vector<std::string> lines;
  const auto output = run_shell("trap 'echo {}; exit 4' TERM; kill -TERM $PPID; while :; do sleep 0.01; done", lines);
  EXPECT_EQ(output.status, 4);
  EXPECT_EQ(output.object, "{}");
}

}  // namespace
}  // namespace yoke::bench
