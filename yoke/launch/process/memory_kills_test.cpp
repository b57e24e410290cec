#include "yoke/launch/process/memory_kills.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace yoke::launch {
namespace {

using testing::HasSubstr;

TEST(MemoryKills, AreCountedInItsOwnGroupsAndOnTheMachine) {
  const test::TemporaryFolder root;
  const auto group = std::string("sys/fs/cgroup/job/");
  root.write("proc/self/cgroup", "0::/job\n");
  root.write(group + "memory.max", "2147483648\n");
  root.write(group + "memory.events", "oom_kill 4\n");
  root.write("proc/vmstat", "nr_free_pages 7\noom_kill 9\n");
  MemoryKills kills(root.path());
  kills.begin();
  EXPECT_EQ(kills.why_killed(), "");
  root.write("proc/vmstat", "nr_free_pages 7\noom_kill 10\n");
  EXPECT_THAT(kills.why_killed(), HasSubstr("a process of this machine"));
  kills.look();
  EXPECT_THAT(kills.why_killed(), HasSubstr("a process of this machine")) << "it may have taken a moment to end";
  kills.look();
  EXPECT_EQ(kills.why_killed(), "") << "that one was killed earlier";
  root.write(group + "memory.events", "oom_kill 5\n");
  root.write("proc/vmstat", "nr_free_pages 7\noom_kill 11\n");
  kills.look();
  EXPECT_EQ(kills.why_killed(), " for want of memory: its control group may use no more than 2.0 GiB");
}

TEST(MemoryKills, AreNoneWhereTheKernelDoesNotCount) {
  const test::TemporaryFolder root;
  MemoryKills kills(root.path());
  kills.begin();
  EXPECT_EQ(kills.why_killed(), "");
}

}  // namespace
}  // namespace yoke::launch
