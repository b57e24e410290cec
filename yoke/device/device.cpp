#include "yoke/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

namespace {

struct Range {
  int64_t least, most;
};
constexpr int64_t kMostBytes = int64_t{1} << 56, kMostCount = int64_t{1} << 60;
constexpr Range kPercent = {0, 100}, kFan = {0, 150},  // NVML: a fan may exceed 100 %
    kCelsius = {-100, 200}, kMilliwatts = {0, 100'000'000}, kLimit = {1, 100'000'000}, kMegahertz = {0, 100'000},
                kBytes = {0, kMostBytes}, kSize = {1, kMostBytes}, kCount = {0, kMostCount}, kLanes = {0, 64};

constexpr std::pair<std::optional<int64_t> Readings::*, Range> kReadings[] = {
    {&Readings::memory_total_bytes, kSize},
    {&Readings::memory_free_bytes, kBytes},
    {&Readings::memory_used_bytes, kBytes},
    {&Readings::memory_reserved_bytes, kBytes},
    {&Readings::utilization_percent, kPercent},
    {&Readings::memory_utilization_percent, kPercent},
    {&Readings::encoder_utilization_percent, kPercent},
    {&Readings::decoder_utilization_percent, kPercent},
    {&Readings::temperature_celsius, kCelsius},
    {&Readings::memory_temperature_celsius, kCelsius},
    {&Readings::fan_percent, kFan},
    {&Readings::power_mw, kMilliwatts},
    {&Readings::power_limit_mw, kLimit},
    {&Readings::energy_mj, kCount},
    {&Readings::clock_sm_mhz, kMegahertz},
    {&Readings::clock_memory_mhz, kMegahertz},
    {&Readings::clock_graphics_mhz, kMegahertz},
    {&Readings::clock_video_mhz, kMegahertz},
    {&Readings::pcie_generation, kLanes},
    {&Readings::pcie_width, kLanes},
    {&Readings::pcie_replays, kCount},
    {&Readings::pcie_rx_bytes_per_second, kBytes},
    {&Readings::pcie_tx_bytes_per_second, kBytes},
    {&Readings::ecc_corrected_volatile, kCount},
    {&Readings::ecc_uncorrected_volatile, kCount},
    {&Readings::ecc_corrected_aggregate, kCount},
    {&Readings::ecc_uncorrected_aggregate, kCount},
    {&Readings::retired_pages, kCount},
    {&Readings::remapped_rows, kCount},
};
constexpr std::pair<std::optional<int64_t> Facts::*, Range> kFacts[] = {
    {&Facts::power_limit_min_mw, kLimit},
    {&Facts::power_limit_max_mw, kLimit},
    {&Facts::power_limit_default_mw, kLimit},
    {&Facts::clock_sm_max_mhz, kMegahertz},
    {&Facts::clock_memory_max_mhz, kMegahertz},
    {&Facts::pcie_generation_max, kLanes},
    {&Facts::pcie_width_max, kLanes},
    {&Facts::temperature_slowdown_celsius, kCelsius},
    {&Facts::temperature_shutdown_celsius, kCelsius},
};

void keep_within(std::optional<int64_t>& value, Range range) {
  if (value && (*value < range.least || *value > range.most)) value.reset();
}

}  // namespace

void remove_implausible(Device& device) {
  auto& now = device.readings;
  for (const auto& [member, range] : kReadings) keep_within(now.*member, range);
  for (const auto& [member, range] : kFacts) keep_within(device.facts.*member, range);
  for (auto& process : device.processes) {
    keep_within(process.memory_bytes, kBytes);
    keep_within(process.utilization_percent, kPercent);
  }
  if (!now.memory_total_bytes || !now.memory_used_bytes) return;
  const auto left = std::max<int64_t>(0, *now.memory_total_bytes - *now.memory_used_bytes);
  if (now.memory_free_bytes.value_or(INT64_MAX) > left) now.memory_free_bytes = left;
}

}  // namespace yoke::device
