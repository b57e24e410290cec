#include "yoke/program/measured_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "yoke/launch/process/descendants.h"

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

TEST(MeasuredProgram, KeepsItsOutputAndCopiesIt) {
  SignalMessages messages;
  auto copy = make_pipe();
  MeasuredProgram program({.argv = {"sh", "-c", "echo one; echo two >&2; exec cat"},
                           .environment = {"PATH=/usr/bin:/bin"},
                           .copy_to = copy.write_end.value()});
  while (!program.status()) program.wait(messages, std::chrono::hours(1));
  EXPECT_EQ(program.status(), 0) << "its standard input is empty";
  EXPECT_EQ(program.output(), "one\ntwo\n");
  char text[64];
  const auto count = read(copy.read_end.value(), text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<size_t>(std::max<ssize_t>(count, 0))), program.output());
}

TEST(MeasuredProgram, LeavesNoProcessBehind) {
  SignalMessages messages;
  { const auto program = start_shell("setsid sleep 1000 & echo ready; exec sleep 1000", messages); }
  EXPECT_FALSE(launch::has_children());
  MeasuredProgram missing({.argv = {"/nonexistent/program"}, .environment = {}});
  while (!missing.status()) missing.wait(messages, std::chrono::hours(1));
  EXPECT_EQ(missing.status(), 127);
}

}  // namespace
}  // namespace yoke::program
