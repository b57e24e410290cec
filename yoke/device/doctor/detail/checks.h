// yoke/device/doctor/detail/checks.h -- the checks that findings() runs. Each is a pure function that appends findings.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/device/doctor/doctor.h"

namespace yoke::device {

using Findings = std::vector<Finding>;

/// Adds a finding about the whole machine.
inline void add_finding(Findings& findings, const char* id, Status status, std::string found, std::string advice = "") {
  findings.push_back({id, status, {}, std::move(found), std::move(advice)});
}

// Checks drivers, libraries and the devices that programs can reach.
void check_gpus(const Observations& observations, Findings& findings);
void check_nvidia_driver(const Observations& observations, Findings& findings);
void check_amd_driver(const Observations& observations, Findings& findings);
void check_runtime(const Observations& observations, Findings& findings);
void check_visibility(const Observations& observations, Findings& findings);
void check_permissions(const Observations& observations, Findings& findings);
void check_torch(const Observations& observations, Findings& findings);
void check_collectives(const Observations& observations, Findings& findings);

// Checks each GPU.
void check_devices(const Observations& observations, Findings& findings);
void check_kernel_log(const Observations& observations, Findings& findings);

// Checks the limits that the machine sets for this process.
void check_limits(const Observations& observations, Findings& findings);

/// A GPU, or a MIG instance of one.
struct NamedDevice {
  std::string id;
  const Device* device = nullptr;
  bool is_instance = false;
};
std::vector<NamedDevice> gpus_of(const Snapshot& snapshot);

bool has_vendor(const Observations& observations, Vendor vendor);  ///< A GPU is on the bus, or its driver is loaded.
/// Returns nullptr if the backend was not used.
const BackendReport* backend_of(const Snapshot& snapshot, std::string_view name);

}  // namespace yoke::device
