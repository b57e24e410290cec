#include "yoke/slurm/job/job_meter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/command.h"

namespace yoke::slurm {
namespace {

TEST(SlurmJobMeter, FindsTheGroupOfTheJob) {
  EXPECT_EQ(job_cgroup_of("/slurm/uid_1000/job_4121/step_0/task_0"), "/slurm/uid_1000/job_4121");
  EXPECT_EQ(job_cgroup_of("/slurm_n3/uid_1000/job_7"), "/slurm_n3/uid_1000/job_7");
  EXPECT_EQ(job_cgroup_of("/system.slice/slurmstepd.scope/job_4121/step_0/user/task_0"),
            "/system.slice/slurmstepd.scope/job_4121");
  EXPECT_EQ(job_cgroup_of("/system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_batch/user/task_special"),
            "/system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500");
  for (const auto* path : {"", "/", "/docker/job_1", "/system.slice/slurmstepd.scope",
                           "/system.slice/slurmstepd.scope/system", "/user.slice/job_3"}) {
    EXPECT_EQ(job_cgroup_of(path), "") << path;
  }
}

TEST(SlurmJobMeter, ReadsVersion1) {
  test::TemporaryFolder root;
  root.write("proc/self/cgroup", "5:memory:/slurm/uid_1/job_7/step_0\n4:cpu,cpuacct:/slurm/uid_1/job_7/step_0\n0::/\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/slurm/uid_1/job_7/cpuacct.usage", "2500000000\n");
  root.write("sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.stat",
             "cache 900\nrss 1\ntotal_rss 4096\ntotal_shmem 100\n");
  root.write("sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.limit_in_bytes", "8192\n");
  JobMeter meter(7, root.path());
  EXPECT_EQ(meter.source(), "cgroup");
  EXPECT_EQ(meter.read().cpu_seconds, 2.5);
  EXPECT_EQ(meter.read().memory_bytes, 4196);
  EXPECT_EQ(meter.memory_limit_bytes(), 8192);
}

TEST(SlurmJobMeter, ReadsVersion2) {
  test::TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n");
  const std::string job = "sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500/";
  root.write(job + "cpu.stat", "usage_usec 1500000\nuser_usec 1\n");
  root.write(job + "memory.stat", "anon 4096\nfile 999\nshmem 10\n");
  root.write(job + "memory.max", "max\n");
  JobMeter meter(7, root.path());
  EXPECT_EQ(meter.read().cpu_seconds, 1.5);
  EXPECT_EQ(meter.read().memory_bytes, 4106);
  EXPECT_EQ(meter.num_oom_kills(), std::nullopt);
  root.write(job + "memory.events", "low 0\noom 1\noom_kill 1\n");
  root.write(job + "memory.peak", "7000\n");
  EXPECT_EQ(meter.num_oom_kills(), 1);
  EXPECT_EQ(meter.memory_with_files_peak_bytes(), 7000);
  EXPECT_EQ(meter.memory_limit_bytes(), std::nullopt);
}

// Sites have cgroups for memory and not for CPUs, and a step's group ends with it.
TEST(SlurmJobMeter, ReadsMemoryWhereOnlyThatHasAGroup) {
  test::TemporaryFolder root;
  const std::string job = "sys/fs/cgroup/memory/slurm_n1/uid_1/job_7/";
  root.write("proc/self/cgroup", "5:memory:/slurm_n1/uid_1/job_7/step_0/task_0\n0::/\n");
  root.write(job + "memory.stat", "total_rss 4096\ntotal_shmem 100\n");
  root.write(job + "memory.max_usage_in_bytes", "9000\n");
  root.write(job + "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  JobMeter meter(7, root.path());
  EXPECT_EQ(meter.source(), "cgroup (memory), processes (CPU)");
  EXPECT_EQ(meter.read().memory_bytes, 4196);
  EXPECT_EQ(meter.memory_with_files_peak_bytes(), 9000);
  EXPECT_EQ(meter.num_oom_kills(), 0);
  root.write(job + "step_0/task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(meter.num_oom_kills(), 2);
  std::filesystem::remove_all(std::filesystem::path(root.path()) / (job + "step_0"));
  EXPECT_EQ(meter.num_oom_kills(), 2);
}

TEST(SlurmJobMeter, CountsProcessesWhereThereIsNoGroup) {
  test::TemporaryFolder root;
  using std::string_literals::operator""s;
  const auto process = [&](const std::string& pid, const std::string& job, int ticks, int pages) {
    const auto numbers =
        "S 1 1 1 0 -1 0 0 0 0 0 " + std::to_string(ticks) + " 0 0 0 20 0 1 0 55 1000 " + std::to_string(pages) + " 0\n";
    root.write("proc/" + pid + "/stat", pid + " (a) b) " + numbers);
    root.write("proc/" + pid + "/environ", "A=1\0SLURM_JOB_ID="s + job + "\0"s);
  };
  const auto hertz = static_cast<int>(sysconf(_SC_CLK_TCK));
  process("10", "7", 2 * hertz, 3);
  process("11", "7", hertz, 1);
  process("12", "77", 50 * hertz, 100);
  root.write("proc/self/cgroup", "0::/\n");
  JobMeter meter(7, root.path());
  EXPECT_EQ(meter.source(), "processes");
  EXPECT_EQ(meter.read().cpu_seconds, 3);
  EXPECT_EQ(meter.read().memory_bytes, 4 * sysconf(_SC_PAGESIZE));
  process("10", "7", 0, 3);  // its time is lost with it
  EXPECT_EQ(meter.read().cpu_seconds, 3);
}

}  // namespace
}  // namespace yoke::slurm
