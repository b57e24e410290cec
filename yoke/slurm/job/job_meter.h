// yoke/slurm/job/job_meter.h -- measures the CPU time and memory of a job on this node.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace yoke::slurm {

/// The folder of a job's cgroup, in the path of one of its processes: up to "job_7", or up to the SLUID that names the
/// job since Slurm 26.05. Empty if the path is not Slurm's. Pure.
std::string job_cgroup_of(std::string_view path);

/// Where a site has cgroups for jobs, those are read. Otherwise the processes count whose environment has the job's
/// SLURM_JOB_ID, as far as this user may read it; short-lived ones count once their parents have waited for them.
class JobMeter {
 public:
  explicit JobMeter(int64_t job, std::filesystem::path sysroot = "/");

  struct Reading {
    double cpu_seconds = 0;    ///< Since the job began on this node.
    int64_t memory_bytes = 0;  ///< Without cached files. Of processes: the sum of their resident memory.
  };
  Reading read();

  /// "cgroup", "processes", or which of them is for which: a site may have cgroups for memory alone.
  std::string source() const;
  std::optional<int64_t> memory_limit_bytes() const;
  /// The most that the cgroup has had at any time, with cached files; nullopt without a cgroup.
  std::optional<int64_t> memory_with_files_peak_bytes() const;
  /// How many processes the kernel has killed because the memory of the job's cgroups did not suffice, as far as it has
  /// been seen; nullopt without a cgroup.
  std::optional<int64_t> num_oom_kills();

 private:
  Reading read_processes();
  bool belongs(int64_t pid, int64_t start_ticks);

  const int64_t job_;
  const std::filesystem::path sysroot_;
  std::filesystem::path cpu_file_, memory_folder_;
  bool is_version_2_ = false;
  std::map<std::pair<int64_t, int64_t>, bool> known_;  ///< By pid and start.
  double most_cpu_seconds_ = 0;
  std::map<std::string, int64_t> oom_kills_;  ///< By cgroup, which ends with its step.
};

}  // namespace yoke::slurm
