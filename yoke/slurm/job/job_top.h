// yoke/slurm/job/job_top.h -- watches the devices of all nodes of a job, by a step beside the job's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/device/source.h"
#include "yoke/slurm/job/device_line.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

/// Finds the job or task that a user names. Errors  kInvalidArgument: `word` names no job, or an array; kNotFound:
/// slurmctld does not know it; kFailedPrecondition: it does not run; those of known_jobs().
Job job_to_watch(const std::string& word, const Environment& environment);

struct TopOptions {
  double interval_s = 2;  ///< Between two samples.
  bool is_once = false;   ///< One page, when all nodes have answered.
};

/// The command line of the step, which shares CPUs, memory and devices with the job. `yoke` is the program on each
/// node. Pure.
std::vector<std::string> top_step(const Job& job, const std::string& yoke, const TopOptions& options);

/// What the step runs on each node: passes on lines (to_lines()) until `print` returns false.
void stream_devices(device::Source& source, const std::string& node, const TopOptions& options,
                    const std::function<bool(const std::string& lines)>& print);

/// What is known of a node.
struct TopNode {
  std::vector<DeviceRow> rows;
  std::optional<std::chrono::duration<double>> age = {};  ///< Since its last answer; nullopt: it has not answered yet.
};
/// A node that has not answered for longer than `silence` is shown as such. Pure.
std::string top_page(const Job& job, const std::map<std::string, TopNode>& nodes, std::chrono::duration<double> silence,
                     int64_t width);

struct TopScreen {
  std::function<int64_t()> width;
  std::function<bool(const std::string& page)> draw;  ///< false: nobody looks any more.
  bool is_early = false;  ///< A page replaces the last one, so it is drawn before all nodes have answered.
};
/// Draws pages until the job ends or nobody looks, and tells that it has ended. Ends the step in any case.
/// Errors  kUnavailable: no step can be started on the nodes.
void watch_job(const Job& job, const std::string& yoke, const TopOptions& options, const Environment& environment,
               const TopScreen& screen, const Tell& tell);

}  // namespace yoke::slurm
