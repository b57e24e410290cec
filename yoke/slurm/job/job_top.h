// yoke/slurm/job/job_top.h -- watches the devices of all nodes of a job, by a step beside the job's own, and the lines
// by which nodes tell about their devices.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/device/device.h"
#include "yoke/device/source.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct DeviceRow {
  std::string id, name, state;
  std::optional<int64_t> utilization_percent, memory_used_bytes, memory_total_bytes, power_mw, temperature_celsius;
  int64_t num_processes = 0;

  bool operator==(const DeviceRow&) const = default;
};

/// The devices of one node at one moment; its GPUs, or its CPU if it has none. Pure.
std::vector<DeviceRow> device_rows(const device::Snapshot& snapshot);

/// The GPUs among rows, without the parts of GPUs (MIG). Pure.
int64_t num_gpus(const std::vector<DeviceRow>& rows);

/// A sentence if more GPUs are shown than the job has: without control groups that confine devices, a node shows all of
/// its GPUs to each of its jobs. Empty if not. Pure.
std::string whose_gpus(int64_t num_of_job, int64_t num_shown);

/// The lines for one sample of `node`, which srun passes on. srun mixes the lines of several tasks only where they are
/// longer than 1024 bytes (MAX_MSG_LEN of its sources), so each device has a short line of its own, and a last line
/// ends the sample. Pure.
std::string to_lines(const std::string& node, const std::vector<DeviceRow>& rows);

/// Puts lines together again.
class DeviceLines {
 public:
  struct Sample {
    std::string node;
    std::vector<DeviceRow> rows;
  };
  /// Takes a line. Returns a sample if it was the last of one. Other lines are ignored.
  std::optional<Sample> take(std::string_view line);

 private:
  std::vector<Sample> open_;
};

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
