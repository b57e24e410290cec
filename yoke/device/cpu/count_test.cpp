#include "yoke/device/cpu/count.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <fstream>

namespace yoke::device {
namespace {

TEST(CpuCount, CountsOnlyNodesOfAllowedCpus) {
  std::string folder = testing::TempDir() + "yoke-nodes-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::filesystem::path nodes(folder);
  const auto add = [&](const char* name, const char* cpus) {
    std::filesystem::create_directory(nodes / name);
    std::ofstream(nodes / name / "cpulist") << cpus << '\n';
  };
  add("node0", "0-7,16-23");
  add("node1", "8-15,24-31");
  add("node2", "");  // memory without processors (CXL, HBM)
  std::ofstream(nodes / "online") << "0-2\n";
  EXPECT_EQ(count_numa_nodes(nodes, {0, 1, 8}), 2);
  EXPECT_EQ(count_numa_nodes(nodes, {24}), 1);
  EXPECT_EQ(count_numa_nodes(nodes / "absent", {0}), 1);
  std::filesystem::remove_all(nodes);
}

TEST(CpuCount, ObeysTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  EXPECT_EQ(count_cpus().num_cpus, CPU_COUNT(&before));
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(count_cpus().num_cpus, 1);
  EXPECT_EQ(count_cpus().num_numa_nodes, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace yoke::device
