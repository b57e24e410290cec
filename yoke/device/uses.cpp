#include "yoke/device/uses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace yoke::device {
namespace {

/// Returns a function that tells whether `selection` names a device or an instance.
std::function<bool(const Device&)> chosen_by(const DeviceSelection& selection, const Snapshot& snapshot) {
  return [choices = selection.resolve(snapshot)](const Device& device) {
    return std::ranges::any_of(choices, [&](const auto& choice) { return choice.device == &device; });
  };
}

}  // namespace

std::vector<DeviceUse> uses_of(const Snapshot& snapshot, const DeviceSelection& selection) {
  const auto is_chosen = chosen_by(selection, snapshot);
  std::vector<DeviceUse> uses;
  const auto add = [&](const Device& device, const std::string& id) {
    const auto first = static_cast<std::ptrdiff_t>(uses.size());
    for (const auto& process : device.processes) uses.push_back({id, device.facts.uuid, process});
    std::stable_sort(uses.begin() + first, uses.end(), [](const DeviceUse& a, const DeviceUse& b) {
      return a.process.memory_bytes.value_or(-1) > b.process.memory_bytes.value_or(-1);
    });
  };
  for (const auto& device : snapshot.devices) {
    if (is_chosen(device)) add(device, id_of(device));
    for (const auto& instance : device.instances) {
      if (is_chosen(device) || is_chosen(instance)) add(instance, id_of(device, instance));
    }
  }
  return uses;
}

std::string Unanswered::what() const {
  return backend.empty() ? "device " + device_id : fmt::format("the driver ({})", backend);
}

std::string Unanswered::why() const {
  const bool has_told_all_else =
      state == name(State::kFree) || state == name(State::kBusy) || state == name(State::kUnknown);
  return has_told_all_else ? reason : state;
}

std::vector<Unanswered> unanswered_of(const Snapshot& snapshot, const DeviceSelection& selection) {
  const auto is_chosen = chosen_by(selection, snapshot);
  std::vector<Unanswered> unanswered;
  for (const auto& report : snapshot.backends) {
    const auto vendor = report.backend == "nvml"     ? Vendor::kNvidia
                        : report.backend == "amdgpu" ? Vendor::kAmd
                                                     : Vendor::kCpu;
    if (report.has_answered || vendor == Vendor::kCpu || !selection.may_name(vendor)) continue;
    unanswered.push_back({.backend = report.backend,
                          .state = std::string(name(report.is_broken ? State::kError : State::kNoAnswer)),
                          .reason = report.reason});
  }
  const auto add = [&](const Device& device, const std::string& id) {
    if (device.vendor == Vendor::kCpu || knows_all_processes(device)) return;
    unanswered.push_back({.device_id = id,
                          .device_uuid = device.facts.uuid,
                          .state = std::string(name(device.state)),
                          .reason = !device.reason.empty()              ? device.reason
                                    : device.process_list_error.empty() ? "its driver does not list processes"
                                                                        : device.process_list_error});
  };
  for (const auto& device : snapshot.devices) {
    // The processes of a GPU in MIG mode are listed under its instances.
    if (device.instances.empty() && is_chosen(device)) add(device, id_of(device));
    for (const auto& instance : device.instances) {
      if (is_chosen(device) || is_chosen(instance)) add(instance, id_of(device, instance));
    }
  }
  return unanswered;
}

const BackendReport* find_silent_backend(const Snapshot& snapshot) {
  const auto found =
      std::ranges::find_if(snapshot.backends, [](const BackendReport& report) { return !report.has_answered; });
  return found == snapshot.backends.end() ? nullptr : &*found;
}

std::string silent_devices(const Snapshot& snapshot) {
  std::vector<std::string> ids;
  for (const auto& device : snapshot.devices) {
    if (device.state == State::kNoAnswer && device.vendor != Vendor::kCpu) ids.push_back(id_of(device));
  }
  if (!ids.empty()) return fmt::format("device{} {}", ids.size() == 1 ? "" : "s", fmt::join(ids, ", "));
  for (const auto& report : snapshot.backends) {
    if (!report.has_answered && !report.is_broken) return fmt::format("the driver ({})", report.backend);
  }
  return "";
}

}  // namespace yoke::device
