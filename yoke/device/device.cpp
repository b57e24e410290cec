#include "yoke/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "yoke/device/detail/numbers.h"

namespace yoke::device {

std::string_view name(Vendor vendor) {
  switch (vendor) {
    case Vendor::kNvidia: return "nvidia";
    case Vendor::kAmd: return "amd";
    case Vendor::kCpu: return "cpu";
  }
  return "";
}

std::string_view name(State state) {
  switch (state) {
    case State::kFree: return "free";
    case State::kBusy: return "busy";
    case State::kLost: return "lost";
    case State::kNoAnswer: return "no answer";
    case State::kNoPermission: return "no permission";
    case State::kUnknown: return "unknown";
    case State::kUnusable: return "unusable";
    case State::kError: return "error";
  }
  return "";
}

std::string id_of(const Device& device) {
  return device.vendor == Vendor::kCpu ? "cpu" : fmt::format("{}", device.index);
}

std::string id_of(const Device& device, const Device& instance) {
  return fmt::format("{}:{}", id_of(device), instance.index);
}

int64_t unaccounted_bytes(const Readings& readings, int64_t accounted_bytes) {
  if (readings.unified_memory.value_or(false)) return 0;
  return std::max<int64_t>(0, readings.memory_used_bytes.value_or(0) - accounted_bytes);
}

namespace {

bool is_computing(const Device& device) {
  int64_t accounted_bytes = 0;
  for (const auto& process : device.processes) {
    if (process.type != "graphics") return true;
    accounted_bytes += process.memory_bytes.value_or(0);
  }
  constexpr int64_t kHeld = int64_t{1} << 30;
  return unaccounted_bytes(device.readings, accounted_bytes) > kHeld;
}

/// Why nothing tells whether somebody uses the device; empty if something does.
std::string doubt(const Device& device) {
  if (device.has_process_list) return "";
  if (!device.process_list_error.empty()) {
    return fmt::format("the driver does not say who uses it ({})", device.process_list_error);
  }
  const bool tells_memory = device.readings.memory_used_bytes && !device.readings.unified_memory.value_or(false);
  return tells_memory ? "" : "the driver lists no processes, and no memory of its own shows whether it is used";
}

void keep_within(std::optional<int64_t>& value, Range range) {
  if (value && (*value < range.least || *value > range.most)) value.reset();
}

}  // namespace

void set_state_by_use(Device& device, const Want& want) {
  const auto has = [&](State state) {
    return std::ranges::any_of(device.instances, [&](const Device& instance) { return instance.state == state; });
  };
  device.reason.clear();
  device.state = is_computing(device) || has(State::kBusy) ? State::kBusy : State::kFree;
  if (device.state == State::kBusy) return;
  const auto set = [&](State state, std::string reason) {
    device.state = state;
    device.reason = std::move(reason);
  };
  if (device.readings.mig_enabled.value_or(false) && device.instances.empty()) {
    set(State::kUnusable, "MIG mode is on, and there is no instance that a program could use");
  } else if (device.readings.compute_mode == "prohibited") {
    set(State::kUnusable, "its compute mode is prohibited: no program can compute on it until `nvidia-smi -c DEFAULT`");
  } else if (has(State::kUnknown)) {
    set(State::kUnknown, "of an instance it is not known who uses it");
  } else if (want.processes && device.instances.empty()) {
    if (auto reason = doubt(device); !reason.empty()) set(State::kUnknown, std::move(reason));
  }
}

void remove_implausible(Device& device) {
  auto& now = device.readings;
  for (const auto& [key, member, plausible] : kNumbers) keep_within(now.*member, plausible);
  for (const auto& [key, member, plausible] : kFactNumbers) keep_within(device.facts.*member, plausible);
  for (auto& process : device.processes) {
    keep_within(process.memory_bytes, kBytes);
    keep_within(process.utilization_percent, kPercent);
  }
  if (!now.memory_total_bytes || !now.memory_used_bytes) return;
  const auto left = std::max<int64_t>(0, *now.memory_total_bytes - *now.memory_used_bytes);
  if (now.memory_free_bytes.value_or(INT64_MAX) > left) now.memory_free_bytes = left;
}

}  // namespace yoke::device
