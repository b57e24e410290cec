#include "yoke/stack/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/message_of.h"
#include "yoke/base/process.h"

namespace yoke::stack {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// A child of this process that ends with it.
class StartedShell {
 public:
  explicit StartedShell(const std::string& script) {
    auto pipe = make_pipe();
    pid_ = spawn({.argv = {"/bin/sh", "-c", script},
                  .out = pipe.write_end.value(),
                  .process_group = 0,
                  .death_signal = SIGKILL});
    pipe.write_end.reset();
    char byte = 0;
    EXPECT_EQ(read(pipe.read_end.value(), &byte, 1), 1) << "the script prints when it is ready";
  }
  StartedShell(const StartedShell&) = delete;
  StartedShell& operator=(const StartedShell&) = delete;
  ~StartedShell() {
    kill(-pid_, SIGKILL);
    wait_for_child(pid_);
  }
  int64_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

launch::Job job_with(std::vector<launch::JobRank> ranks) {
  return {.pid = getpid(), .host = "here", .ranks = std::move(ranks)};
}

TEST(StackProcesses, ARankThatCannotBeReadSaysWhy) {
  const auto ranks = look_at_ranks(job_with({{.rank = 0, .host = "here"},
                                             {.rank = 1, .host = "here", .pid = 7, .wait_status = 3 << 8},
                                             {.rank = 2, .host = "here", .pid = 7, .wait_status = SIGKILL},
                                             {.rank = 3, .host = "there", .pid = getpid()},
                                             {.rank = 4, .host = "here", .pid = getppid()},
                                             {.rank = 5, .host = "here", .pid = 1 << 22}}),
                                   std::nullopt);
  ASSERT_THAT(ranks, SizeIs(6));
  for (const auto& rank : ranks) EXPECT_THAT(rank.processes, testing::IsEmpty()) << rank.rank;
  EXPECT_EQ(ranks[0].note, "is being started");
  EXPECT_THAT(ranks[1].note, HasSubstr("3"));
  EXPECT_THAT(ranks[2].note, HasSubstr("SIGKILL"));
  EXPECT_EQ(ranks[3].note, "process " + std::to_string(getpid()) + " on there: look at it there");
  EXPECT_EQ(ranks[4].note, "process " + std::to_string(getppid()) + " was not started by this launcher");
  EXPECT_EQ(ranks[5].note, "process 4194304 was not started by this launcher");
  EXPECT_EQ(test::message_of([] { look_at_ranks(job_with({{.rank = 0}}), 9); }, ErrorCode::kNotFound),
            "job " + std::to_string(getpid()) + " has no rank 9");
}

TEST(StackProcesses, AShellThatWaitsForItsChildIsPassed) {
  const StartedShell shell("sleep 1000 & echo; wait; exit 1");
  const auto look = [&] {
    return look_at_ranks(job_with({{.rank = 6, .host = "here", .pid = shell.pid()}, {.rank = 7}}), 6).at(0);
  };
  auto rank = look();  // maybe before the shell waits, or before its child is sleep
  while (rank.processes.size() != 2 || rank.processes[1].command != "sleep 1000") rank = look();
  EXPECT_EQ(rank.processes[0].pid, shell.pid());
  EXPECT_THAT(rank.processes[0].threads, testing::IsEmpty());
  EXPECT_THAT(rank.processes[0].notes, testing::ElementsAre("waits for its child"));
  EXPECT_EQ(rank.processes[1].command, "sleep 1000");
  ASSERT_THAT(rank.processes[1].threads, SizeIs(1));
  EXPECT_EQ(rank.processes[1].threads[0].tid, rank.processes[1].pid);
  EXPECT_THAT(look_at_threads(1 << 22), testing::IsEmpty()) << "such a process has ended";
}

TEST(StackProcesses, OneThreadInTheKernelIsEnough) {
  EXPECT_FALSE(is_in_kernel({{.tid = 1, .state = 'S'}, {.tid = 2, .state = 'R'}}));
  EXPECT_TRUE(is_in_kernel({{.tid = 1, .state = 'S'}, {.tid = 2, .state = 'D'}}));
  EXPECT_FALSE(is_in_kernel({}));
}

}  // namespace
}  // namespace yoke::stack
