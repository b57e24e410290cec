#include "yoke/view/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "yoke/view/labels.h"

namespace yoke::view {
namespace {

using device::Device;

std::string memory(const device::Readings& readings) {
  if (!readings.memory_used_bytes || !readings.memory_total_bytes) return kUnknown;
  return fmt::format("{:.1f} / {:.1f} GiB", to_gib(*readings.memory_used_bytes), to_gib(*readings.memory_total_bytes));
}

std::string number(const std::optional<int64_t>& value) { return value ? fmt::format("{}", *value) : ""; }

std::string unix_time(const std::optional<claim::Time>& time) {
  return time ? fmt::format("{}", std::chrono::system_clock::to_time_t(*time)) : "";
}

/// Calls `visit(device, id)` for each device and, after it, for its MIG instances.
void for_each(const std::vector<device::Choice>& choices,
              const std::function<void(const Device&, const std::string&)>& visit) {
  for (const auto& choice : choices) {
    visit(*choice.device, choice.id());
    for (const auto& instance : choice.device->instances) visit(instance, id_of(*choice.device, instance));
  }
}

std::string user_list(const Device& device) { return fmt::format("{}", fmt::join(users_of(device), ", ")); }

}  // namespace

Table device_table(const device::Snapshot& snapshot, const ClaimLabels& claims) {
  // If the columns do not all fit, the name is shortened first. Memory and users stay.
  Table table{.columns = {{.title = "#", .align = Align::kRight},
                          {.title = "device", .shrinks_to = 12, .drop_order = 3},
                          {.title = "state", .shrinks_to = 4, .shrinks_late = true},
                          {.title = "util", .align = Align::kRight, .drop_order = 4},
                          {.title = "memory", .align = Align::kRight},
                          {.title = "temp", .align = Align::kRight, .drop_order = 2},
                          {.title = "power", .align = Align::kRight, .drop_order = 1},
                          {.title = "users", .shrinks_to = 5, .shrinks_late = true}}};
  if (!claims.empty()) table.columns.push_back({.title = "claim", .shrinks_to = 5, .shrinks_late = true});
  device::for_each_device(snapshot, [&](const Device& device, const std::string& id) {
    const auto& readings = device.readings;
    table.rows.push_back({id, full_name(device), std::string(name(device.state)),
                          percent_text(readings.utilization_percent), memory(readings),
                          readings.temperature_celsius ? fmt::format("{} C", *readings.temperature_celsius) : kUnknown,
                          readings.power_mw ? fmt::format("{} W", to_watts(*readings.power_mw)) : kUnknown,
                          device.instances.empty() && !knows_processes(device) ? kUnknown : user_list(device)});
    if (claims.empty()) return;
    const auto claim = claims.find(id);
    table.rows.back().push_back(claim == claims.end() ? "" : claim->second);
  });
  return table;
}

Table device_csv(const std::vector<device::Choice>& choices, const std::vector<ClaimRow>& claims) {
  Table table;
  constexpr std::string_view kTitles =
      "id vendor name uuid pci_bus_id state utilization_percent memory_used_bytes memory_total_bytes "
      "memory_reserved_bytes temperature_celsius power_mw power_limit_mw num_processes users claim_users claim_since "
      "claim_until claim_shared_bytes claim_purposes";
  for (const auto title : words_of(kTitles)) table.columns.push_back({std::string(title)});
  for_each(choices, [&](const Device& device, const std::string& id) {
    const auto& facts = device.facts;
    const auto& readings = device.readings;
    table.rows.push_back(
        {id, std::string(name(device.vendor)), facts.name, facts.uuid, facts.pci_bus_id,
         std::string(name(device.state)), number(readings.utilization_percent), number(readings.memory_used_bytes),
         number(readings.memory_total_bytes), number(readings.memory_reserved_bytes),
         number(readings.temperature_celsius), number(readings.power_mw), number(readings.power_limit_mw),
         knows_processes(device) ? fmt::format("{}", device.processes.size()) : "", user_list(device)});
    const auto of_claims = [&](const std::function<std::string(const ClaimRow&)>& text) {
      std::vector<std::string> texts;
      for (const auto& claim : claims) {
        if (claim.id == id) texts.push_back(csv_cell(text(claim)));
      }
      table.rows.back().push_back(fmt::format("{}", fmt::join(texts, ", ")));
    };
    of_claims([](const ClaimRow& claim) { return claim.user.empty() ? "?" : claim.user; });
    of_claims([](const ClaimRow& claim) { return unix_time(claim.since); });
    of_claims([](const ClaimRow& claim) { return unix_time(claim.until); });
    of_claims([](const ClaimRow& claim) { return number(claim.share_bytes); });
    of_claims([](const ClaimRow& claim) { return claim.purpose; });
  });
  return table;
}

Table device_list(const std::vector<device::Choice>& choices) {
  Table table{.columns = {{"#", Align::kRight}, {"uuid"}, {"pci_bus_id"}, {"name"}}};
  for_each(choices, [&](const Device& device, const std::string& id) {
    const auto known = [](const std::string& text) { return text.empty() ? std::string(kUnknown) : text; };
    table.rows.push_back({id, known(device.facts.uuid), known(device.facts.pci_bus_id), full_name(device)});
  });
  return table;
}

std::vector<std::string> device_notes(const device::Snapshot& snapshot) {
  std::vector<std::string> notes;
  device::for_each_device(snapshot, [&](const Device& device, const std::string& id) {
    if (!device.reason.empty()) notes.push_back(fmt::format("device {}: {}", id, printable(device.reason)));
  });
  if (const auto missing = find_missing_gpu(snapshot)) {
    if (!missing->reasons.empty()) notes.push_back(printable(missing->text()));
    return notes;
  }
  for (const auto& report : snapshot.backends) {  // a driver that is installed but does not work
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

}  // namespace yoke::view
