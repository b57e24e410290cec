// tests/support/forked_process.h -- runs a part of a test in a process of its own.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "yoke/base/process.h"

namespace yoke::test {

/// A process for code that takes over signals or standard streams, or that serves until it is killed. Its status is
/// what `body` returns; 99 if `body` throws. It is killed with the test, or by the destructor. REQUIRES: one thread.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      _exit(body());
    } catch (const std::exception& error) {
      dprintf(STDERR_FILENO, "%s\n", error.what());
      _exit(99);
    }
  }
  ~ForkedProcess() {
    signal(SIGKILL);
    wait();
  }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  /// Waits for its end, and returns its shell_status(); 127 if it was waited for before.
  int wait() { return pid_ > 0 ? wait_for_child(std::exchange(pid_, -1)) : 127; }

 private:
  pid_t pid_;
};

/// Reads until the other side has closed its end of a pipe or connection.
inline std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd one{fd, POLLIN, 0};
    poll(&one, 1, -1);
    const auto count = read(fd, buffer, sizeof buffer);
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace yoke::test
