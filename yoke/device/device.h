// yoke/device/device.h -- what is known of a device: fixed facts, live readings, the processes on it.
//
// Values only. Everything that a driver may not tell is optional: nullopt means not supported, not permitted or not
// asked for, and is never written as zero. docs/devices.md has the meaning of each number, and the JSON form.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/process/info.h"
#include "yoke/device/process/origin.h"

namespace yoke::device {

enum class Vendor { kNvidia, kAmd, kCpu };
std::string_view name(Vendor vendor);  ///< "nvidia", "amd", "cpu"

/// What the device was doing when it was last asked.
enum class State {
  kFree,          ///< No process computes on it, and no memory is held that nobody accounts for.
  kBusy,          ///< Somebody uses it, or holds its memory.
  kLost,          ///< The driver has lost it (fallen off the bus).
  kNoAnswer,      ///< The driver did not answer within the deadline.
  kNoPermission,  ///< It is there, and this user may not use it.
  kError,         ///< The driver refused for another reason; see Device::reason.
};
std::string_view name(State state);  ///< "free", "busy", "lost", "no answer", "no permission", "error"

/// What does not change while the machine runs.
struct Facts {
  std::string name;        ///< "NVIDIA A100-SXM4-80GB"; empty when unknown, like the others.
  std::string uuid;        ///< "GPU-..." or "MIG-..."; of the CPU empty.
  std::string pci_bus_id;  ///< "0000:c1:00.0", as sysfs writes it: domain of four digits, small letters.
  std::string serial, vbios, architecture, brand;
  std::string compute_capability;       ///< NVIDIA: "9.0".
  std::string target;                   ///< AMD: "gfx90a".
  std::optional<int64_t> vendor_index;  ///< NVML's index; of AMD the position among KFD's GPUs.
  std::optional<int64_t> minor_number;  ///< /dev/nvidiaN, /dev/dri/renderDN
  std::optional<int64_t> numa_node;
  std::optional<int64_t> gpu_instance, compute_instance;  ///< Of a MIG instance.
  std::string cpu_affinity;                               ///< The processors beside it, as "0-31,64-95".
  std::optional<int64_t> power_limit_min_mw, power_limit_max_mw, power_limit_default_mw;
  std::optional<int64_t> clock_sm_max_mhz, clock_memory_max_mhz;
  std::optional<int64_t> pcie_generation_max, pcie_width_max;
  std::optional<int64_t> temperature_slowdown_celsius, temperature_shutdown_celsius;
  // Of the CPU row: the machine, and what of it this process may use (affinity mask and cgroup).
  std::optional<int64_t> num_packages, num_numa_nodes, num_cores, num_cpus, num_allowed_cpus;

  bool operator==(const Facts&) const = default;
};

/// What was read in one sample.
struct Readings {
  std::optional<int64_t> memory_total_bytes, memory_free_bytes;
  std::optional<int64_t> memory_used_bytes;      ///< Without what driver and firmware reserve, where they tell.
  std::optional<int64_t> memory_reserved_bytes;  ///< By driver and firmware.
  std::optional<int64_t> utilization_percent;    ///< Share of the last period (NVML: up to 1 s) with a kernel running.
  std::optional<int64_t> memory_utilization_percent, encoder_utilization_percent, decoder_utilization_percent;
  std::optional<int64_t> temperature_celsius, memory_temperature_celsius, fan_percent;
  std::optional<int64_t> power_mw, power_limit_mw, energy_mj;
  std::optional<int64_t> clock_sm_mhz, clock_memory_mhz, clock_graphics_mhz, clock_video_mhz;
  std::optional<int64_t> pcie_generation, pcie_width, pcie_replays;
  std::optional<int64_t> pcie_rx_bytes_per_second, pcie_tx_bytes_per_second;  ///< Want::pcie_throughput
  std::optional<int64_t> ecc_corrected_volatile, ecc_uncorrected_volatile, ecc_corrected_aggregate,
      ecc_uncorrected_aggregate;
  std::optional<int64_t> retired_pages, remapped_rows;  ///< Memory taken out of service.
  std::optional<bool> persistence_mode, ecc_enabled, mig_enabled, display_active, retirement_pending;
  std::optional<std::string> performance_state, compute_mode;  ///< "P0"; "default", "exclusive_process", "prohibited"
  /// Why the clocks are below their maximum: "idle", "power cap", "thermal slowdown"...; empty: nothing slows it.
  std::optional<std::vector<std::string>> throttle_reasons;

  bool operator==(const Readings&) const = default;
};

/// A process that uses a device, as its driver tells, and what the machine knows of it.
struct DeviceProcess {
  int64_t pid = 0;
  std::string type;                            ///< "compute", "graphics", "mps"
  std::optional<int64_t> memory_bytes;         ///< Device memory; drivers may not know it.
  std::optional<int64_t> utilization_percent;  ///< Of the device's units; Want::process_utilization.
  std::optional<int64_t> gpu_instance, compute_instance;
  ProcessInfo info;
  Origin origin;  ///< Want::origins

  bool operator==(const DeviceProcess&) const = default;
};

/// A connection of a device to another one, or to a switch.
struct Link {
  int64_t number = 0;
  std::string kind;  ///< "nvlink", "xgmi"
  bool is_active = false;
  std::string remote_pci_bus_id;  ///< Of the device or switch at the other end; empty when unknown.

  bool operator==(const Link&) const = default;
};

struct Device {
  int64_t index = 0;  ///< Position in `yoke devices`: NVIDIA's in NVML's order (PCI), then AMD's, then the CPU.
  Vendor vendor = Vendor::kCpu;
  State state = State::kFree;
  std::string reason;  ///< Why the state is what it is, when it is neither free nor busy.
  Facts facts;
  Readings readings;
  std::vector<DeviceProcess> processes;
  bool has_process_list = false;           ///< The driver was asked for them and told: an empty list then means nobody.
  std::optional<std::vector<Link>> links;  ///< Want::links
  std::vector<Device> instances;           ///< MIG devices, `index` counted from 0 within their parent.

  bool operator==(const Device&) const = default;
};

/// What one way of finding devices said.
struct BackendReport {
  std::string backend;  ///< "nvml", "amdgpu", "cpu"
  bool is_available = false;
  bool has_answered = true;    ///< With its devices, within the deadline. If not, nobody knows which devices it has.
  std::string reason;          ///< Why it is not available: "libnvidia-ml.so.1 is not installed".
  std::string driver_version;  ///< "580.65.06"
  std::string api_version;     ///< What the driver supports: of CUDA "13.0".
  bool is_broken = false;      ///< It is here, and says that it does not work; it has not answered then.

  bool operator==(const BackendReport&) const = default;
};

/// Where a device stands, which is known before the device is asked.
struct DevicePlace {
  Vendor vendor = Vendor::kCpu;
  int64_t index = 0;   ///< As Device::index.
  int64_t number = 0;  ///< Among the devices of its vendor.

  bool operator==(const DevicePlace&) const = default;
};

/// Everything at one moment.
struct Snapshot {
  std::chrono::system_clock::time_point time;
  std::string host;
  std::vector<BackendReport> backends;
  std::vector<Device> devices;
  std::vector<DevicePlace> unasked;  ///< Devices that are here, and that SourceOptions::selection cannot name.

  bool operator==(const Snapshot&) const = default;
};

/// What to read beside facts, memory, utilisation, temperature and power. What is not shown need not be read.
struct Want {
  bool processes = true;             ///< Which there are, with their owner and command line.
  bool details = false;              ///< All readings and facts that have no flag of their own.
  bool process_utilization = false;  ///< Of each process.
  bool origins = false;              ///< Container, job, session of each process.
  bool pcie_throughput = false;      ///< NVML measures it for 20 ms, twice.
  bool links = false;

  static Want everything() { return {true, true, true, true, true, true}; }
};

/// "3", "0:1" for a MIG instance, "cpu".
std::string id_of(const Device& device);

/// Whether `processes` are all that there are, as far as the driver tells; false: nobody asked, or nobody answered.
inline bool knows_processes(const Device& device) { return device.has_process_list || !device.processes.empty(); }

/// kFree or kBusy by what was read: busy with a process that computes, or, beyond what processes account for, over 1
/// GiB of memory held. Graphics alone (a desktop) leaves a device free.
State state_by_use(const Device& device);

}  // namespace yoke::device
