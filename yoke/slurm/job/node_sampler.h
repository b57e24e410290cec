// yoke/slurm/job/node_sampler.h -- writes what a job uses on this node into a small file, for `yoke slurm report`.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/tell.h"
#include "yoke/device/source.h"
#include "yoke/device/usage_report.h"
#include "yoke/slurm/job/job_meter.h"
#include "yoke/slurm/job/samples.h"

namespace yoke::slurm {

struct NodeSamplerOptions {
  int64_t job = 0;
  std::string folder;  ///< That of the job, in which each sampling has a file.
  std::chrono::duration<double> interval{10};
  /// Opens the drivers.
  std::function<std::unique_ptr<device::Source>()> open = [] { return device::make_live_source({.with_cpu = false}); };
};

class NodeSampler {
 public:
  /// `environment` is that of a process of the job. REQUIRES: `tell` outlives this object.
  NodeSampler(NodeSamplerOptions options, const Environment& environment, const Tell& tell);

  void begin();  ///< Opens the drivers and takes the first sample.
  bool has_begun() const { return recorder_.has_value(); }
  /// Until the next sample. REQUIRES: has_begun().
  int milliseconds_left() const;
  /// Takes the next sample, and writes the file from time to time. A file that cannot be written must not disturb the
  /// job: this is told once.
  void sample_if_due();
  void finish();  ///< Takes and writes the last sample, if it has begun.

  /// As Source::has_stuck_worker().
  bool has_stuck_worker() const { return source_ && source_->has_stuck_worker(); }

 private:
  void take();
  void write();

  const NodeSamplerOptions options_;
  const Environment environment_;
  const Tell& tell_;
  JobMeter meter_;
  NodeSample sample_;
  std::string path_;
  std::unique_ptr<device::Source> source_;
  std::set<std::string> visible_;
  std::optional<device::UsageRecorder> recorder_;
  double cpu_at_begin_ = 0;
  Clock::time_point begun_, next_, write_at_;
  bool has_told_ = false;
};

/// Samples until `fd` ends, while signals that ask this process to end are ignored. Begins after `delay`: `yoke run`
/// starts its ranks first, so that they and the sampler do not wait for each other's drivers.
void sample_until_eof(NodeSampler& sampler, int fd, std::chrono::milliseconds delay = std::chrono::seconds(2));

/// Runs a program, and samples until it has ended. Signals that other processes send to this one reach the program.
/// Returns its exit status, 127 or 126 if it cannot be run, which is told. REQUIRES: this process has one thread.
int sample_program(NodeSampler& sampler, const std::vector<std::string>& argv, const Tell& tell);

/// The same without samples: becomes the program. Returns 127 or 126 if it cannot be run.
int become_program(const std::vector<std::string>& argv, const Tell& tell);

/// Starts `yoke slurm sample --until-eof` beside this process if it is in a job of Slurm, else does nothing. A failure
/// to start it is ignored, because a job must not fail for its report.
class JobSampler {
 public:
  JobSampler(const std::filesystem::path& yoke, const Environment& environment);
  JobSampler(const JobSampler&) = delete;
  JobSampler& operator=(const JobSampler&) = delete;
  ~JobSampler();  ///< Lets it take and write the last sample; waits for at most a second.

 private:
  pid_t child_ = -1;
  UniqueFd end_;  ///< The child ends when this is closed, also if this process is killed.
};

}  // namespace yoke::slurm
