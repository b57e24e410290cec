#include "yoke/device/doctor/doctor.h"

#include <algorithm>

#include "yoke/base/json.h"
#include "yoke/base/json_text.h"
#include "yoke/device/doctor/detail/checks.h"

namespace yoke::device {

std::string_view name(Status status) {
  switch (status) {
    case Status::kOk: return "ok";
    case Status::kWarn: return "warn";
    case Status::kFail: return "fail";
    case Status::kSkip: return "skip";
  }
  return "";
}

std::vector<NamedDevice> gpus_of(const Snapshot& snapshot) {
  std::vector<NamedDevice> gpus;
  for (const auto& device : snapshot.devices) {
    if (device.vendor == Vendor::kCpu) continue;
    gpus.push_back({id_of(device), &device});
    for (const auto& instance : device.instances) {
      gpus.push_back({id_of(device, instance), &instance, true});
    }
  }
  return gpus;
}

bool has_vendor(const Observations& observations, Vendor vendor) {
  if (observations.vendor && observations.vendor != vendor) return false;
  const auto is_of_it = [&](const auto& gpu) { return gpu.vendor == vendor; };
  const auto& devices = observations.snapshot.devices;
  if (std::ranges::any_of(devices, is_of_it)) return true;
  if (!observations.system) return false;
  if (vendor == Vendor::kNvidia && !observations.system->nvidia_module_version.empty()) return true;
  if (vendor == Vendor::kAmd && observations.system->has_kfd) return true;
  const auto& on_bus = observations.system->pci_gpus;
  return std::ranges::any_of(on_bus, is_of_it);
}

const BackendReport* backend_of(const Snapshot& snapshot, std::string_view name) {
  for (const auto& backend : snapshot.backends) {
    if (backend.backend == name) return &backend;
  }
  return nullptr;
}

std::vector<Finding> findings(const Observations& observations) {
  Findings result;
  if (observations.has_devices_alone) {
    check_devices(observations, result);
    return result;
  }
  if (!observations.system) {
    add_finding(result, "files", Status::kFail, "the files of drivers in /proc and /sys did not answer in time",
                "a driver or a file system hangs: look at `dmesg` and at `ps` for processes in state D");
  }
  check_gpus(observations, result);
  check_nvidia_driver(observations, result);
  check_amd_driver(observations, result);
  check_permissions(observations, result);
  check_visibility(observations, result);
  check_runtime(observations, result);
  check_torch(observations, result);
  check_collectives(observations, result);
  check_devices(observations, result);
  check_kernel_log(observations, result);
  check_limits(observations, result);
  return result;
}

nlohmann::ordered_json to_json(const Finding& finding) {
  return {{"id", finding.id},
          {"status", name(finding.status)},
          {"devices", finding.devices},
          {"found", json_string<Json>(finding.found)},
          {"advice", finding.advice.empty() ? Json(nullptr) : json_string<Json>(finding.advice)}};
}

}  // namespace yoke::device
