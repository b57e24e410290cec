#include "yoke/device/device.h"

#include <fmt/format.h>

#include <algorithm>

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
    case State::kError: return "error";
  }
  return "";
}

std::string id_of(const Device& device) {
  return device.vendor == Vendor::kCpu ? "cpu" : fmt::format("{}", device.index);
}

State state_by_use(const Device& device) {
  int64_t accounted_bytes = 0;
  for (const auto& process : device.processes) {
    if (process.type != "graphics") return State::kBusy;
    accounted_bytes += process.memory_bytes.value_or(0);
  }
  constexpr int64_t kHeld = int64_t{1} << 30;
  if (device.readings.memory_used_bytes.value_or(0) - accounted_bytes > kHeld) return State::kBusy;
  const auto is_busy = [](const Device& instance) { return instance.state == State::kBusy; };
  return std::ranges::any_of(device.instances, is_busy) ? State::kBusy : State::kFree;
}

}  // namespace yoke::device
