#include "yoke/view/labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "yoke/device/uses.h"

namespace yoke::view {

using device::Device;
using device::Vendor;

std::string full_name(const Device& device) {
  if (const auto& name = device.facts.name; !name.empty()) {
    const auto profile = device.facts.gpu_instance ? name.find("MIG ") : std::string::npos;
    return profile == std::string::npos ? name : name.substr(profile);
  }
  return device.vendor == Vendor::kNvidia ? "NVIDIA GPU" : device.vendor == Vendor::kAmd ? "AMD GPU" : "CPU";
}

std::string short_name(const Device& device) {
  std::string_view name = device.facts.name;
  if (const auto profile = name.find(" MIG "); profile != name.npos) return std::string(name.substr(profile + 5));
  for (const std::string_view vendor : {"NVIDIA ", "AMD ", "Intel(R) ", "Tesla "}) {
    if (name.starts_with(vendor)) name.remove_prefix(vendor.size());
  }
  if (!name.empty()) return std::string(name);
  return device.vendor == Vendor::kCpu ? "CPU" : "GPU";
}

std::string percent_text(const std::optional<int64_t>& percent) {
  return percent ? fmt::format("{}%", *percent) : kUnknown;
}

int64_t to_watts(int64_t milliwatts) { return (milliwatts + 500) / 1000; }

double to_gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::vector<std::string> users_of(const Device& device) {
  std::map<std::string, int64_t> bytes;
  const auto add = [&](const Device& one) {
    for (const auto& process : one.processes) {
      bytes[process.info.user.empty() ? "?" : process.info.user] += process.memory_bytes.value_or(0);
    }
  };
  add(device);
  for (const auto& instance : device.instances) add(instance);
  std::vector<std::pair<std::string, int64_t>> users(bytes.begin(), bytes.end());
  std::ranges::stable_sort(users, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (auto& [user, ignored] : users) names.push_back(std::move(user));
  return names;
}

std::optional<std::chrono::duration<double>> age_of(const device::ProcessInfo& info,
                                                    std::chrono::system_clock::time_point now) {
  if (!info.started_at) return std::nullopt;
  return std::max<std::chrono::duration<double>>(std::chrono::seconds(0), now - *info.started_at);
}

std::string MissingGpu::text() const {
  const std::string what = is_certain ? "no GPU" : "no GPU is known";
  return reasons.empty() ? what : fmt::format("{}: {}", what, fmt::join(reasons, "; "));
}

std::optional<MissingGpu> find_missing_gpu(const device::Snapshot& snapshot) {
  const bool has_gpu =
      std::ranges::any_of(snapshot.devices, [](const Device& device) { return device.vendor != Vendor::kCpu; });
  if (has_gpu) return std::nullopt;
  MissingGpu missing{.is_certain = find_silent_backend(snapshot) == nullptr};
  for (const auto& report : snapshot.backends) {
    if (!report.reason.empty()) missing.reasons.push_back(report.reason);
  }
  return missing;
}

}  // namespace yoke::view
