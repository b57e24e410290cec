#include "yoke/keep/fuse_helpers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/support/command.h"

namespace yoke::keep {
namespace {

/// A shell in the place of Apptainer, whose children are a helper, a program with another name, and the first program
/// of a container. It prints their PIDs.
class FuseHelper : public testing::Test {
 protected:
  FuseHelper() {
    for (const char* name : {"squashfuse_ll", "other"}) {
      std::filesystem::create_symlink("/bin/sleep", folder_.path(name));
    }
    EXPECT_TRUE(parent_.wait_until([&] { return std::count(parent_.out().begin(), parent_.out().end(), '\n') == 3; }));
    std::istringstream(parent_.out()) >> helper_ >> other_ >> first_;
    // Until a child has become its program, it has the name of the shell.
    for (const auto& [pid, name] : {std::pair(helper_, "squashfuse_ll"), {other_, "other"}}) {
      EXPECT_TRUE(test::wait_until([pid = pid, name = name] {
        return test::slurp("/proc/" + std::to_string(pid) + "/comm") == std::string(name) + "\n";
      }));
    }
  }
  ~FuseHelper() override {
    for (const auto pid : {helper_, other_, first_}) kill(pid, SIGKILL);
  }

  test::TemporaryFolder folder_;
  test::Command parent_{{.argv = {"sh", "-c",
                                  "cd \"$0\"; until [ -e other ]; do sleep 0.01; done; for name in ./squashfuse_ll "
                                  "./other sleep; do $name 1000 & echo $!; done; wait",
                                  folder_.path()}}};
  pid_t helper_ = 0, other_ = 0, first_ = 0;
};

TEST_F(FuseHelper, IsEndedIfItsApptainerWasKilled) {
  FuseHelpers helpers(first_);
  parent_.signal(SIGKILL);
  parent_.wait();
  EXPECT_EQ(kill(helper_, 0), 0) << "nothing but yoke ends it";
  helpers.end(std::chrono::milliseconds(0));
  EXPECT_TRUE(test::wait_until([&] { return kill(helper_, 0) != 0 || test::state_of(helper_) == 'Z'; }));
  EXPECT_EQ(kill(other_, 0), 0) << "it has another name";
}

}  // namespace
}  // namespace yoke::keep
