// yoke/device/device.h -- describes a device: fixed facts, live readings, and the processes on it.
//
// These are plain values. A value that a driver may not report is optional: nullopt means not supported, not permitted
// or not requested, and no zero replaces it. docs/devices.md has the meaning of each number, and the JSON form.
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

/// The state of the device when it was last read.
enum class State {
  kFree,          ///< No process computes on the device, and known processes account for its used memory.
  kBusy,          ///< A process computes on the device, or known processes do not account for its used memory.
  kLost,          ///< The driver has lost the device (fallen off the bus).
  kNoAnswer,      ///< The driver did not answer within the deadline.
  kNoPermission,  ///< The device exists, but this user may not use it.
  kUnknown,       ///< The device answers, but nothing tells whether somebody uses it: its process list failed.
  kUnusable,      ///< No program can compute on it as it is set up: compute mode prohibited, MIG without an instance.
  kError,         ///< The driver refused for a different reason, which is in Device::reason.
};
std::string_view name(State state);  ///< "free", "busy", "lost", "no answer", "no permission", "unknown", ...

/// Properties that do not change while the machine runs.
struct Facts {
  std::string name;        ///< "NVIDIA A100-SXM4-80GB"; empty if unknown, like the other texts.
  std::string uuid;        ///< "GPU-..." or "MIG-..."; empty for the CPU.
  std::string pci_bus_id;  ///< "0000:c1:00.0", as sysfs writes it: domain of four digits or more, lowercase.
  std::string serial, vbios, architecture, brand;
  std::string compute_capability;       ///< NVIDIA: "9.0".
  std::string target;                   ///< AMD: "gfx90a".
  std::optional<int64_t> vendor_index;  ///< NVML's index; for AMD the position among KFD's GPUs.
  std::optional<int64_t> minor_number;  ///< The N in /dev/nvidiaN or /dev/dri/renderDN.
  std::optional<int64_t> numa_node;
  std::optional<int64_t> gpu_instance, compute_instance;  ///< Set for a MIG instance.
  std::string cpu_affinity;                               ///< The CPUs close to the device, such as "0-31,64-95".
  std::optional<int64_t> power_limit_min_mw, power_limit_max_mw, power_limit_default_mw;
  std::optional<int64_t> clock_sm_max_mhz, clock_memory_max_mhz;
  std::optional<int64_t> pcie_generation_max, pcie_width_max;
  std::optional<int64_t> temperature_slowdown_celsius, temperature_shutdown_celsius;
  // Set only for the CPU: the size of the machine, and how much of it this process may use (affinity mask, cgroup).
  std::optional<int64_t> num_packages, num_numa_nodes, num_cores, num_cpus, num_allowed_cpus;

  bool operator==(const Facts&) const = default;
};

/// The values read in one sample.
struct Readings {
  std::optional<int64_t> memory_total_bytes, memory_free_bytes;
  std::optional<int64_t> memory_used_bytes;      ///< Excludes memory_reserved_bytes if that is known.
  std::optional<int64_t> memory_reserved_bytes;  ///< Memory that driver and firmware reserve.
  std::optional<int64_t> utilization_percent;    ///< Share of the last period (NVML: up to 1 s) in which a kernel ran.
  std::optional<int64_t> memory_utilization_percent, encoder_utilization_percent, decoder_utilization_percent;
  std::optional<int64_t> temperature_celsius, memory_temperature_celsius, fan_percent;
  std::optional<int64_t> power_mw, power_limit_mw, energy_mj;
  std::optional<int64_t> clock_sm_mhz, clock_memory_mhz, clock_graphics_mhz, clock_video_mhz;
  std::optional<int64_t> pcie_generation, pcie_width, pcie_replays;
  std::optional<int64_t> pcie_rx_bytes_per_second, pcie_tx_bytes_per_second;  ///< Needs Want::pcie_throughput.
  std::optional<int64_t> ecc_corrected_volatile, ecc_uncorrected_volatile, ecc_corrected_aggregate,
      ecc_uncorrected_aggregate;
  std::optional<int64_t> retired_pages, remapped_rows;  ///< Defective memory that was taken out of use.
  std::optional<bool> persistence_mode, ecc_enabled, mig_enabled, display_active, retirement_pending;
  std::optional<bool> ecc_after_reset, mig_after_reset;  ///< If it was switched: what holds after the next reset.
  std::optional<bool> remapping_failed;                  ///< Defective memory could not be replaced by spare rows.
  /// The device computes in the memory of the machine, so the memory values are those of the machine, and do not tell
  /// whether somebody uses the device.
  std::optional<bool> unified_memory;
  std::optional<std::string> performance_state, compute_mode;  ///< "P0"; "default", "exclusive_process" or "prohibited"
  /// Why the clocks are below their maximum: "idle", "power cap", "thermal slowdown"...; empty if they are not.
  std::optional<std::vector<std::string>> throttle_reasons;

  bool operator==(const Readings&) const = default;
};

/// A process that uses a device, described by data from the driver and from /proc.
struct DeviceProcess {
  int64_t pid = 0;
  std::string type;                            ///< "compute", "graphics", "mps"
  std::optional<int64_t> memory_bytes;         ///< Device memory; some drivers do not report it.
  std::optional<int64_t> utilization_percent;  ///< Its share of the compute units. Needs Want::process_utilization.
  std::optional<int64_t> gpu_instance, compute_instance;
  ProcessInfo info;
  Origin origin;  ///< Needs Want::origins.

  bool operator==(const DeviceProcess&) const = default;
};

/// A connection from a device to another device or to a switch.
struct Link {
  int64_t number = 0;
  std::string kind;  ///< "nvlink", "xgmi"
  bool is_active = false;
  std::string remote_pci_bus_id;  ///< The device or switch at the other end; empty if unknown.

  bool operator==(const Link&) const = default;
};

struct Device {
  int64_t index = 0;  ///< Index in `yoke devices`: NVIDIA's devices in NVML's order (PCI), then AMD's, then the CPU.
  Vendor vendor = Vendor::kCpu;
  State state = State::kFree;
  std::string reason;  ///< Explains every state except kFree and kBusy.
  Facts facts;
  Readings readings;
  std::vector<DeviceProcess> processes;
  /// Whether the driver listed all processes. If so, an empty list means none. If not, there may be more than those in
  /// `processes`, and process_list_error says why if the driver has such lists and one of them failed.
  bool has_process_list = false;
  std::string process_list_error;
  std::optional<std::vector<Link>> links;  ///< Needs Want::links.
  std::vector<Device> instances;           ///< MIG devices; `index` is the driver's, so there may be holes.

  bool operator==(const Device&) const = default;
};

/// What one backend reports about itself when it is opened.
struct BackendReport {
  std::string backend;  ///< "nvml", "amdgpu", "cpu"
  bool is_available = false;
  bool has_answered = true;  ///< Whether the backend listed its devices within the deadline; if not, they are unknown.
  std::string reason;        ///< Why the backend is not available: "libnvidia-ml.so.1 is not installed".
  std::string driver_version;  ///< "580.65.06"
  std::string api_version;     ///< The highest version that the driver supports, such as "13.0" for CUDA.
  bool is_broken = false;  ///< The driver is installed, but reports that it does not work. Then has_answered is false.

  bool operator==(const BackendReport&) const = default;
};

/// Identifies a device before it is read.
struct DevicePlace {
  Vendor vendor = Vendor::kCpu;
  int64_t index = 0;   ///< Equal to Device::index.
  int64_t number = 0;  ///< The index among the devices of its vendor.

  bool operator==(const DevicePlace&) const = default;
};

/// All devices at one moment.
struct Snapshot {
  std::chrono::system_clock::time_point time;
  std::string host;
  std::vector<BackendReport> backends;
  std::vector<Device> devices;
  std::vector<DevicePlace> unasked;  ///< Devices not read, because SourceOptions::selection does not name them.

  bool operator==(const Snapshot&) const = default;
};

/// What to read in addition to facts, memory, utilisation, temperature and power, which are always read. Request only
/// values that will be shown.
struct Want {
  bool processes = true;             ///< The processes, with owner and command line.
  bool details = false;              ///< All readings and facts that have no flag of their own here.
  bool process_utilization = false;  ///< The utilisation by each process.
  bool origins = false;              ///< The container, job and session of each process.
  bool pcie_throughput = false;      ///< Slow: NVML measures each direction for 20 ms.
  bool links = false;

  static Want everything() { return {true, true, true, true, true, true}; }
};

/// Returns "3" or "cpu".
std::string id_of(const Device& device);
/// Returns "0:1" for a MIG instance of `device`.
std::string id_of(const Device& device, const Device& instance);

/// Calls `visit(device, id)` for each device and, after it, for its MIG instances.
template <class Visit>
void for_each_device(const Snapshot& snapshot, const Visit& visit) {
  for (const auto& device : snapshot.devices) {
    visit(device, id_of(device));
    for (const auto& instance : device.instances) visit(instance, id_of(device, instance));
  }
}

/// Whether something is known of the processes: all of them, or some.
inline bool knows_processes(const Device& device) { return device.has_process_list || !device.processes.empty(); }

/// Whether those are all, as far as the driver knows.
inline bool knows_all_processes(const Device& device) {
  return knows_processes(device) && device.process_list_error.empty();
}

/// Whether the driver answers for the device, so that its readings can be relied on.
inline bool is_answering(const Device& device) {
  return device.state == State::kFree || device.state == State::kBusy || device.state == State::kUnknown ||
         device.state == State::kUnusable;
}

/// The memory that is used, but not by `accounted_bytes` of known processes. 0 for unified memory, most of which the
/// rest of the machine uses.
int64_t unaccounted_bytes(const Readings& readings, int64_t accounted_bytes);

/// Derives the state of a device that answers, and its reason. A device is busy if a process computes on it, or if
/// known processes do not account for more than 1 GiB of its used memory. A device that is only used for graphics (a
/// desktop) is free. A device whose process list failed is never free, nor is one of which neither processes nor memory
/// are known. `want`: what was read.
void set_state_by_use(Device& device, const Want& want);

/// Removes readings that no device can have, such as 655 % or 2^32 - 1 degrees, by which drivers say "not known".
void remove_implausible(Device& device);

}  // namespace yoke::device
