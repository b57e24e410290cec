// yoke/slurm/job/device_line.h -- the lines by which nodes tell `yoke slurm top` about their devices. Pure.
//
// srun mixes the lines of several tasks only where they are longer than 1024 bytes (MAX_MSG_LEN of its sources), so
// each device has a short line of its own, and a last line ends the sample of a node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::slurm {

struct DeviceRow {
  std::string id, name, state;
  std::optional<int64_t> utilization_percent, memory_used_bytes, memory_total_bytes, power_mw, temperature_celsius;
  int64_t num_processes = 0;

  bool operator==(const DeviceRow&) const = default;
};

/// The devices of one node at one moment; its GPUs, or its CPU if it has none.
std::vector<DeviceRow> device_rows(const device::Snapshot& snapshot);

/// The GPUs among rows, without the parts of GPUs (MIG).
int64_t num_gpus(const std::vector<DeviceRow>& rows);

/// A sentence if more GPUs are shown than the job has: without control groups that confine devices, a node shows all of
/// its GPUs to each of its jobs. Empty if not.
std::string whose_gpus(int64_t num_of_job, int64_t num_shown);

/// The lines for one sample of `node`.
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

}  // namespace yoke::slurm
