#include "yoke/cli/device_views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>

#include "yoke/base/format.h"

namespace yoke::cli {
namespace {

using device::Device;
using device::State;
using device::Vendor;

constexpr const char* kUnknown = "-";

std::string percent(const std::optional<int64_t>& value) { return value ? fmt::format("{}%", *value) : kUnknown; }

std::string memory(const device::Readings& readings) {
  if (!readings.memory_used_bytes || !readings.memory_total_bytes) return kUnknown;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  return fmt::format("{:.1f} / {:.1f} GiB", gib(*readings.memory_used_bytes), gib(*readings.memory_total_bytes));
}

std::string number(const std::optional<int64_t>& value) { return value ? fmt::format("{}", *value) : ""; }

/// Calls `visit(device, id)` for each device, and after it for its MIG instances.
void for_each(const std::vector<device::Choice>& choices,
              const std::function<void(const Device&, const std::string&)>& visit) {
  for (const auto& choice : choices) {
    visit(*choice.device, choice.id());
    for (const auto& instance : choice.device->instances) {
      visit(instance, device::Choice{&instance, choice.device, ""}.id());
    }
  }
}

void for_each(const device::Snapshot& snapshot, const std::function<void(const Device&, const std::string&)>& visit) {
  for_each(device::DeviceSelection().resolve(snapshot), visit);
}

std::string display_name(const Device& device) {
  if (const auto& name = device.facts.name; !name.empty()) {
    // "NVIDIA A100-SXM4-80GB MIG 3g.40gb" stands under its GPU.
    const auto profile = device.facts.gpu_instance ? name.find("MIG ") : std::string::npos;
    return profile == std::string::npos ? name : name.substr(profile);
  }
  return device.vendor == Vendor::kNvidia ? "NVIDIA GPU" : device.vendor == Vendor::kAmd ? "AMD GPU" : "CPU";
}

}  // namespace

std::string users_of(const Device& device) {
  std::map<std::string, int64_t> bytes;
  const auto add = [&](const Device& one) {
    for (const auto& process : one.processes) {
      bytes[process.info.user.empty() ? "?" : process.info.user] += process.memory_bytes.value_or(0);
    }
  };
  add(device);
  for (const auto& instance : device.instances) add(instance);
  std::vector<std::pair<std::string, int64_t>> users(bytes.begin(), bytes.end());
  std::stable_sort(users.begin(), users.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (const auto& [user, ignored] : users) names.push_back(user);
  return fmt::format("{}", fmt::join(names, ", "));
}

Table device_table(const device::Snapshot& snapshot) {
  // Where they do not all fit, the name is shortened first; memory and users stay.
  Table table{.columns = {{.title = "#", .align = Align::kRight},
                          {.title = "device", .shrinks_to = 12, .drop_order = 3},
                          {.title = "state", .shrinks_to = 4, .shrinks_late = true},
                          {.title = "util", .align = Align::kRight, .drop_order = 4},
                          {.title = "memory", .align = Align::kRight},
                          {.title = "temp", .align = Align::kRight, .drop_order = 2},
                          {.title = "power", .align = Align::kRight, .drop_order = 1},
                          {.title = "users", .shrinks_to = 5, .shrinks_late = true}}};
  for_each(snapshot, [&](const Device& device, const std::string& id) {
    const auto& readings = device.readings;
    table.rows.push_back({id, display_name(device), std::string(name(device.state)),
                          percent(readings.utilization_percent), memory(readings),
                          readings.temperature_celsius ? fmt::format("{} C", *readings.temperature_celsius) : kUnknown,
                          readings.power_mw ? fmt::format("{} W", (*readings.power_mw + 500) / 1000) : kUnknown,
                          device.instances.empty() && !knows_processes(device) ? kUnknown : users_of(device)});
  });
  return table;
}

Table device_csv(const std::vector<device::Choice>& choices) {
  Table table;
  for (const char* title : {"id", "vendor", "name", "uuid", "pci_bus_id", "state", "utilization_percent",
                            "memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes", "temperature_celsius",
                            "power_mw", "power_limit_mw", "num_processes", "users"}) {
    table.columns.push_back({title});
  }
  for_each(choices, [&](const Device& device, const std::string& id) {
    const auto& facts = device.facts;
    const auto& readings = device.readings;
    table.rows.push_back({id, std::string(name(device.vendor)), facts.name, facts.uuid, facts.pci_bus_id,
                          std::string(name(device.state)), number(readings.utilization_percent),
                          number(readings.memory_used_bytes), number(readings.memory_total_bytes),
                          number(readings.memory_reserved_bytes), number(readings.temperature_celsius),
                          number(readings.power_mw), number(readings.power_limit_mw),
                          knows_processes(device) ? fmt::format("{}", device.processes.size()) : "", users_of(device)});
  });
  return table;
}

Table device_list(const std::vector<device::Choice>& choices) {
  Table table{.columns = {{"#", Align::kRight}, {"uuid"}, {"pci_bus_id"}, {"name"}}};
  for_each(choices, [&](const Device& device, const std::string& id) {
    const auto known = [](const std::string& text) { return text.empty() ? std::string(kUnknown) : text; };
    table.rows.push_back({id, known(device.facts.uuid), known(device.facts.pci_bus_id), display_name(device)});
  });
  return table;
}

std::vector<std::string> device_notes(const device::Snapshot& snapshot) {
  std::vector<std::string> notes;
  bool has_gpu = false;
  for_each(snapshot, [&](const Device& device, const std::string& id) {
    has_gpu = has_gpu || device.vendor != Vendor::kCpu;
    if (!device.reason.empty()) notes.push_back(fmt::format("device {}: {}", id, printable(device.reason)));
  });
  std::vector<std::string> reasons;
  for (const auto& report : snapshot.backends) {
    if (!report.reason.empty()) reasons.push_back(printable(report.reason));
  }
  const bool is_known = std::all_of(snapshot.backends.begin(), snapshot.backends.end(),
                                    [](const auto& report) { return report.has_answered; });
  if (!has_gpu && !reasons.empty()) {
    notes.push_back(fmt::format("{}: {}", is_known ? "no GPU" : "no GPU is known", fmt::join(reasons, "; ")));
  }
  if (!has_gpu) return notes;
  for (const auto& report : snapshot.backends) {  // a driver that is there and does not work
    const bool is_absent = report.reason.starts_with("no ");
    if (!report.is_available && !is_absent && !report.reason.empty()) notes.push_back(printable(report.reason));
  }
  return notes;
}

std::string note_lines(const device::Snapshot& snapshot, const std::string& speaker) {
  std::string text;
  for (const auto& note : device_notes(snapshot)) text += speaker + note + '\n';
  return text;
}

}  // namespace yoke::cli
