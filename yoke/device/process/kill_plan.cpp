#include "yoke/device/process/kill_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace yoke::device {
namespace {

/// Merges the uses of several devices by one process into one target, with the memory on all of them.
std::vector<KillTarget> targets_of(const std::vector<DeviceUse>& uses) {
  std::vector<KillTarget> targets;
  for (const auto& use : uses) {
    const auto known =
        std::ranges::find_if(targets, [&](const KillTarget& target) { return target.pid == use.process.pid; });
    if (known == targets.end()) {
      targets.push_back({.pid = use.process.pid, .devices = {use.device_id}, .process = use.process});
      continue;
    }
    known->devices.push_back(use.device_id);
    auto& memory = known->process.memory_bytes;
    if (use.process.memory_bytes) memory = memory.value_or(0) + *use.process.memory_bytes;
  }
  return targets;
}

std::optional<Refusal> not_on_a_device(const ProcessInfo& info, const Snapshot& snapshot) {
  if (!info.is_visible.value_or(false)) return Refusal{ErrorCode::kNotFound, "is not there"};
  auto reason = std::string("is on no device; --any ends it nevertheless");
  if (const auto silent = silent_devices(snapshot); !silent.empty()) {
    reason = fmt::format("is on no device that answers ({} did not); --any ends it nevertheless", silent);
  }
  return Refusal{ErrorCode::kFailedPrecondition, reason};
}

/// Returns a refusal that no option overrides, if there is one.
std::optional<Refusal> never(const KillTarget& target, const KillRequest& request, const KillAsker& asker) {
  const auto& info = target.process.info;
  if (target.pid == asker.pid) return Refusal{ErrorCode::kFailedPrecondition, "is this command"};
  if (target.pid == 1) {
    return Refusal{ErrorCode::kFailedPrecondition,
                   "is the first process of this machine or container; stop that instead"};
  }
  if (!info.is_visible.value_or(false)) {
    const auto reason = info.reason.empty() ? "nothing is known of it" : info.reason;
    return Refusal{ErrorCode::kNotFound, "cannot be reached from here: " + reason};
  }
  if (!info.start_ticks) return Refusal{ErrorCode::kPermissionDenied, "cannot be looked at: " + info.reason};
  const bool is_named = !request.pids.empty();
  if (!is_named && asker.ancestors.contains(target.pid)) {
    return Refusal{ErrorCode::kFailedPrecondition, "is a parent of this command; name its PID to end it nevertheless"};
  }
  return std::nullopt;
}

}  // namespace

std::vector<KillTarget> plan_kill(const KillRequest& request, const Snapshot& snapshot, const KillAsker& asker,
                                  const std::function<ProcessInfo(int64_t pid)>& describe) {
  if (!request.devices.is_everything()) {
    for (const auto& choice : request.devices.resolve(snapshot)) {
      if (choice.device->vendor != Vendor::kCpu || choice.word != "cpu") continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "every process uses the processors; name PIDs, or GPUs instead of `cpu`");
    }
  }
  const auto on_devices = targets_of(uses_of(snapshot, request.devices));
  std::vector<KillTarget> targets;
  if (request.pids.empty()) {
    std::ranges::copy_if(on_devices, std::back_inserter(targets), [&](const KillTarget& target) {
      return !request.uid || target.process.info.uid == request.uid;
    });
  }
  for (const auto pid : request.pids) {
    const auto is_same = [&](const KillTarget& target) { return target.pid == pid; };
    if (std::ranges::any_of(targets, is_same)) continue;
    const auto found = std::ranges::find_if(on_devices, is_same);
    if (found != on_devices.end()) {
      targets.push_back(*found);
      continue;
    }
    auto& target = targets.emplace_back(KillTarget{.pid = pid});
    target.process.pid = pid;
    target.process.info = describe(pid);
    const bool is_there = target.process.info.is_visible.value_or(false);
    if (!is_there || !request.with_any) target.refusal = not_on_a_device(target.process.info, snapshot);
  }
  for (auto& target : targets) {
    if (!target.refusal) target.refusal = never(target, request, asker);
  }
  return targets;
}

}  // namespace yoke::device
