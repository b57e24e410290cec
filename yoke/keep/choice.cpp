#include "yoke/keep/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/device/selection.h"

namespace yoke::keep {
namespace {

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

void choose_named(const device::Snapshot& snapshot, const std::vector<std::string>& words,
                  claim::AllocationRequest& request) {
  request.only.clear();
  if (words.empty()) return;
  const auto add = [&](const std::string& id) {
    if (!has(request.only, id)) request.only.push_back(id);
  };
  for (const auto& choice : device::DeviceSelection::parse(words).resolve(snapshot)) {
    if (has(words, "all") && choice.device->vendor == device::Vendor::kCpu) continue;  // it cannot be claimed
    if (choice.device->instances.empty()) add(choice.id());
    for (const auto& instance : choice.device->instances) add(device::Choice{&instance, choice.device, ""}.id());
  }
  if (request.wish.num_devices == 0) request.wish.num_devices = static_cast<int64_t>(request.only.size());
}

void choose_used(const device::Snapshot& snapshot, int64_t pid, claim::AllocationRequest& request) {
  request.only.clear();
  const auto look_at = [&](const device::Device& device, const std::string& id) {
    const auto own = std::ranges::find(device.processes, pid, &device::DeviceProcess::pid);
    if (own == device.processes.end()) return;
    for (const auto& process : device.processes) {
      if (process.type == "graphics" || process.info.uid == own->info.uid) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  "device {} is also used by {} (pid {}), so it cannot be claimed for process {}", id,
                  process.info.user.empty() ? "somebody" : printable(process.info.user), process.pid, pid);
    }
    request.only.push_back(id);
  };
  for (const auto& device : snapshot.devices) {
    if (device.instances.empty()) look_at(device, id_of(device));
    for (const auto& instance : device.instances) {
      look_at(instance, fmt::format("{}:{}", device.index, instance.index));
    }
  }
  if (request.only.empty()) {
    throw Error(ErrorCode::kNotFound, "process {} computes on no device; `yoke ps` lists those that do", pid);
  }
  request.wish.num_devices = static_cast<int64_t>(request.only.size());
}

std::vector<std::string> keys_of(const device::Snapshot& snapshot, const claim::AllocationRequest& request) {
  std::vector<std::string> keys;
  for (const auto& candidate : candidates_of(snapshot, request.wish)) {
    using claim::Standing;
    const auto standing = candidate.standing;
    const bool is_chosen = request.only.empty() || has(request.only, candidate.id);
    if (is_chosen && standing != Standing::kUnusable && standing != Standing::kTooSmall) keys.push_back(candidate.key);
  }
  return keys;
}

}  // namespace yoke::keep
