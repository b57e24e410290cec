#include "yoke/base/cgroup_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace yoke {
namespace {

namespace fs = std::filesystem;

class Root {
 public:
  Root() : path_(fs::temp_directory_path() / ("yoke-cgroup-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() { fs::remove_all(path_); }

  Root& write(const std::string& file, const std::string& text) {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return *this;
  }
  const fs::path& path() const { return path_; }
  CgroupLimits read() const {
    const auto limits = read_cgroup_limits(path_);
    EXPECT_EQ(read_cgroup_cpus(path_), limits.cpus);
    return limits;
  }

 private:
  fs::path path_;
};

TEST(CgroupLimits, NoneWhereNothingIsSaid) {
  EXPECT_EQ(Root().read(), CgroupLimits());
  EXPECT_EQ(Root().write("proc/self/cgroup", "0::/a\n").write("sys/fs/cgroup/a/memory.max", "max\n").read(),
            CgroupLimits());
}

TEST(CgroupLimits, TheTightestGroupOfVersion2Counts) {
  const auto limits = Root()
                          .write("proc/self/cgroup", "0::/user.slice/job\n")
                          .write("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")
                          .write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n")
                          .write("sys/fs/cgroup/user.slice/memory.max", "8589934592\n")
                          .write("sys/fs/cgroup/user.slice/memory.current", "8000000000\n")
                          .write("sys/fs/cgroup/user.slice/job/memory.max", "4294967296\n")
                          .write("sys/fs/cgroup/user.slice/job/memory.current", "3000000000\n")
                          .write("sys/fs/cgroup/user.slice/job/memory.stat", "anon 5\ninactive_file 1000000000\n")
                          .write("sys/fs/cgroup/user.slice/job/memory.events", "low 0\noom 3\noom_kill 2\n")
                          .write("sys/fs/cgroup/user.slice/pids.max", "512\n")
                          .write("sys/fs/cgroup/user.slice/pids.current", "500\n")
                          .read();
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 4294967296);
  EXPECT_EQ(limits.memory_used_bytes, 2'000'000'000);
  EXPECT_EQ(limits.memory_left_bytes, 589'934'592) << "the group above has a higher limit, and less is left of it";
  EXPECT_EQ(limits.max_processes, 512);
  EXPECT_EQ(limits.num_processes, 500);
  EXPECT_EQ(limits.num_out_of_memory_kills, 2);
}

TEST(CgroupLimits, OfAnotherProcess) {
  Root root;
  root.write("proc/4711/cgroup", "0::/box\n").write("sys/fs/cgroup/box/memory.max", "4096\n");
  EXPECT_EQ(read_cgroup_limits(root.path(), "4711").memory_bytes, 4096);
  EXPECT_EQ(root.read().memory_bytes, std::nullopt);
}

TEST(AvailableMemory, IsWhatTheHostAndTheGroupsLeave) {
  Root root;
  EXPECT_EQ(available_memory_bytes(root.path()), 0) << "unknown";
  root.write("proc/meminfo", "MemTotal: 10 kB\nMemAvailable:   7 kB\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 7 * 1024);
  root.write("proc/self/cgroup", "0::/job\n")
      .write("sys/fs/cgroup/job/memory.max", "5000\n")
      .write("sys/fs/cgroup/job/memory.current", "2000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 3000);
  root.write("sys/fs/cgroup/job/memory.current", "6000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 0);
}

TEST(CgroupLimits, Version1AndItsWordsForUnlimited) {
  const auto limits =
      Root()
          .write("proc/self/cgroup", "4:memory:/job\n2:cpu,cpuacct:/job\n1:pids:/\n")
          .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
          .write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n")
          .write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
          .write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
          .write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
          .write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n")
          .write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
          .read();
  EXPECT_EQ(limits.memory_bytes, 1073741824);
  EXPECT_EQ(limits.num_out_of_memory_kills, 7);
  EXPECT_EQ(limits.cpus, 4);
  EXPECT_EQ(limits.max_processes, std::nullopt);
}

TEST(CgroupLimits, InAContainerTheMountIsTheGroup) {
  const auto limits = Root()
                          .write("proc/self/cgroup", "0::/../../host/path\n7:memory:/docker/3f2a\n")
                          .write("sys/fs/cgroup/cpu.max", "200000 100000\n")
                          .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n")
                          .read();
  EXPECT_EQ(limits.cpus, 2);
  EXPECT_EQ(limits.memory_bytes, 2147483648);
}

TEST(CgroupLimits, NonsenseLimitsNothing) {
  EXPECT_EQ(Root()
                .write("proc/self/cgroup", "nonsense\n0:\n0::/\n")
                .write("sys/fs/cgroup/cpu.max", "0 0\n")
                .write("sys/fs/cgroup/memory.max", "-5\n")
                .write("sys/fs/cgroup/pids.max", "99999999999999999999999\n")
                .read(),
            CgroupLimits());
}

}  // namespace
}  // namespace yoke
