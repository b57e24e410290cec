#include "yoke/device/process/signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

using std::chrono::milliseconds;

/// A child that waits to be ended.
class SignalledChild {
 public:
  SignalledChild() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~SignalledChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int64_t start_ticks() const { return describe_process(pid_).start_ticks.value(); }
  int ended_by() const {
    int status = 0;
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    status = info.si_status;
    return status;
  }

 private:
  pid_t pid_;
};

ErrorCode code_of(const auto& action) { return test::error_of(action).code(); }

TEST(ProcessHandle, SignalsAndSeesTheEnd) {
  const SignalledChild child;
  const ProcessHandle handle(child.pid(), child.start_ticks());
  EXPECT_FALSE(handle.wait_for_end(milliseconds(0)));
  handle.signal(SIGTERM);
  EXPECT_TRUE(handle.wait_for_end(milliseconds(20'000)));
  EXPECT_EQ(child.ended_by(), SIGTERM);
}

TEST(ProcessHandle, AnotherProcessOfTheSameNumberIsNotTouched) {
  const SignalledChild child;
  EXPECT_EQ(code_of([&] { ProcessHandle(child.pid(), child.start_ticks() - 1); }), ErrorCode::kNotFound);
  const ProcessHandle handle(child.pid(), child.start_ticks());
  EXPECT_FALSE(handle.wait_for_end(milliseconds(0)));
}

TEST(ProcessHandle, WhatHasEndedIsNotFound) {
  std::optional<ProcessHandle> handle;
  pid_t pid = -1;
  int64_t start_ticks = 0;
  {
    const SignalledChild child;
    pid = child.pid();
    start_ticks = child.start_ticks();
    handle.emplace(pid, start_ticks);
  }
  EXPECT_EQ(code_of([&] { handle->signal(SIGTERM); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { ProcessHandle(pid, start_ticks); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { ProcessHandle(0, 0); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { ProcessHandle(-1, 0); }), ErrorCode::kNotFound) << "would be everybody";
}

}  // namespace
}  // namespace yoke::device
