// tests/claim/attacker.h -- a process of a different user that does something to the folder of locks.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "yoke/base/file.h"

namespace yoke::test {

/// A process of `uid` that has done something to the folder, and lives until the test ends.
class Attacker {
 public:
  Attacker(uid_t uid, const std::function<void()>& attack) {
    auto pipe = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(1);
      attack();
      if (write(pipe.write_end.value(), "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    pipe.write_end.reset();
    char byte = 0;
    EXPECT_EQ(read(pipe.read_end.value(), &byte, 1), 1);
  }
  ~Attacker() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace yoke::test
