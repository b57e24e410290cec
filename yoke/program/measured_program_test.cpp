#include "yoke/program/measured_program.h"

#include <gtest/gtest.h>

#include <csignal>

namespace yoke::program {
namespace {

/// Starts a shell with this script, and waits until the script has printed "ready".
std::unique_ptr<MeasuredProgram> start_shell(const std::string& script, SignalMessages& messages) {
  auto program = std::make_unique<MeasuredProgram>(
      MeasuredProgramOptions{.argv = {"sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}});
  while (!program->status() && program->output().find("ready") == std::string::npos) {
    program->wait(messages, std::chrono::milliseconds(5));
  }
  return program;
}

TEST(MeasuredProgram, EndsBySigtermOrIsKilledAfterTheGrace) {
  SignalMessages messages;
  const auto willing = start_shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", messages);
  EXPECT_TRUE(willing->end(messages, std::chrono::hours(1)));
  EXPECT_EQ(willing->status(), 3);
  const auto deaf = start_shell("trap '' TERM; echo ready; while :; do sleep 0.01; done", messages);
  EXPECT_FALSE(deaf->end(messages, std::chrono::milliseconds(1)));
  EXPECT_EQ(deaf->interruption(), std::nullopt);
}

// When the program is told to end, it interrupts this process, and does not end. The test would take the whole grace.
TEST(MeasuredProgram, AFurtherSignalKillsItAtOnce) {
  SignalMessages messages;
  const auto program = start_shell("trap 'kill -INT $PPID' TERM; echo ready; while :; do sleep 0.01; done", messages);
  EXPECT_FALSE(program->end(messages, std::chrono::hours(1)));
  EXPECT_EQ(program->interruption(), SIGINT);
}

}  // namespace
}  // namespace yoke::program
