#include "yoke/device/uses.h"

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
      if (is_chosen(device) || is_chosen(instance)) add(instance, Choice{&instance, &device, ""}.id());
    }
  }
  return uses;
}

}  // namespace yoke::device
