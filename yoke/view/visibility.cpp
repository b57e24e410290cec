#include "yoke/view/visibility.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/device/uses.h"

namespace yoke::view {
namespace {

struct VisibilityRow {
  const device::DeviceVisibility& visibility;
  const device::Device& device;  ///< The GPU or MIG instance of the row.
  const device::Device& gpu;

  VisibilityRow(const device::DeviceVisibility& row, const device::Snapshot& snapshot)
      : visibility(row), device(find(row, snapshot, true)), gpu(find(row, snapshot, false)) {}

  std::string id() const {
    return visibility.instance ? fmt::format("{}:{}", gpu.index, device.index) : fmt::format("{}", gpu.index);
  }
  const std::string& name() const { return device.facts.name.empty() ? gpu.facts.name : device.facts.name; }

 private:
  static const device::Device& find(const device::DeviceVisibility& row, const device::Snapshot& snapshot,
                                    bool with_instance) {
    const auto gpu =
        std::ranges::find_if(snapshot.devices, [&](const device::Device& other) { return other.index == row.index; });
    return with_instance && row.instance ? gpu->instances[static_cast<size_t>(*row.instance)] : *gpu;
  }
};

std::string id_of_entry(const device::Entry& entry, const device::Snapshot& snapshot) {
  if (!entry.unit) return "";
  device::DeviceVisibility place;
  place.index = entry.unit->device;
  place.instance = entry.unit->instance;
  return VisibilityRow(place, snapshot).id();
}

Json entry_json(const device::Entry& entry, const device::Snapshot& snapshot) {
  return {{"text", json_string<Json>(entry.text)},
          {"verdict", name(entry.verdict)},
          {"device", or_null(id_of_entry(entry, snapshot))},
          {"why", entry.why},
          {"certain", entry.is_certain}};
}

Table entries_table(const device::Variable& variable, const device::Snapshot& snapshot) {
  constexpr int64_t kWidth = 30;
  Table table{{{"  ENTRY"}, {"VERDICT"}, {"DEVICE"}, {"WHY"}}, {}};
  for (const auto& entry : variable.entries) {
    table.rows.push_back({"  \"" + fit(printable(entry.text), kWidth) + "\"", std::string(name(entry.verdict)),
                          id_of_entry(entry, snapshot), entry.why + (entry.is_certain ? "" : " (not certain)")});
  }
  return table;
}

Table devices_table(const device::Visibility& visibility, const device::Snapshot& snapshot, device::Vendor vendor) {
  Table table{{{"  NUMBER"}, {"DEVICE"}, {"NAME"}, {"UUID, OR WHY IT IS HIDDEN"}}, {}};
  for (const auto& item : visibility.devices) {
    if (item.vendor != vendor) continue;
    const VisibilityRow row(item, snapshot);
    const auto number = item.ordinal ? fmt::format("{}", *item.ordinal) : "hidden";
    table.rows.push_back({fmt::format("  {}{}", number, item.is_certain ? "" : "?"), row.id(), row.name(),
                          item.ordinal ? row.device.facts.uuid : item.reason});
  }
  return table;
}

}  // namespace

std::string visibility_text(const device::Visibility& visibility, const device::Snapshot& snapshot) {
  std::string text;
  for (const auto& variable : visibility.variables) {
    constexpr int64_t kWidth = 60;
    text += fmt::format("{}=\"{}\": {}\n", variable.name, fit(printable(variable.value), kWidth), variable.effect);
    if (!variable.entries.empty()) text += to_text(entries_table(variable, snapshot), kUnlimitedWidth);
  }
  text += text.empty() ? "No variable hides devices.\n\n" : "\n";
  bool is_any = false;
  for (const auto vendor : {device::Vendor::kNvidia, device::Vendor::kAmd}) {
    const auto table = devices_table(visibility, snapshot, vendor);
    if (table.rows.empty()) continue;
    is_any = true;
    const auto num_visible = std::ranges::count_if(
        visibility.devices, [&](const auto& item) { return item.vendor == vendor && item.ordinal; });
    text += fmt::format("{} programs see {} of {}:\n", vendor == device::Vendor::kNvidia ? "CUDA" : "HIP", num_visible,
                        table.rows.size());
    text += to_text(table, kUnlimitedWidth);
  }
  if (const auto* silent = device::find_silent_backend(snapshot)) {
    text += fmt::format("It is not known which GPUs there are: {}.\n", silent->reason);
  } else if (!is_any) {
    text += "Programs see no GPU: there is none here.\n";
  }
  const bool is_certain =
      std::ranges::all_of(visibility.devices, [](const device::DeviceVisibility& item) { return item.is_certain; });
  if (!is_certain) {
    text += "\n?: CUDA's order is not certain here; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use --set.\n";
  }
  for (const auto& line : visibility.warnings) text += "\nwarning: " + line + '\n';
  return text;
}

nlohmann::ordered_json visibility_json(const device::Visibility& visibility, const device::Snapshot& snapshot) {
  auto devices = Json::array();
  for (const auto& item : visibility.devices) {
    const VisibilityRow row(item, snapshot);
    devices.push_back({{"index", item.index},
                       {"instance", item.instance ? Json(row.device.index) : Json()},
                       {"visible", item.ordinal.has_value()},
                       {"ordinal", or_null(item.ordinal)},
                       {"certain", item.is_certain},
                       {"vendor", name(item.vendor)},
                       {"name", or_null(row.name())},
                       {"uuid", or_null(row.device.facts.uuid)},
                       {"pci_bus_id", or_null(row.gpu.facts.pci_bus_id)},
                       {"reason", or_null(item.reason)}});
  }
  auto variables = Json::array();
  for (const auto& variable : visibility.variables) {
    const auto to_json = [&](const auto& entry) { return entry_json(entry, snapshot); };
    variables.push_back({{"name", variable.name},
                         {"value", json_string<Json>(variable.value)},
                         {"has_effect", variable.has_effect},
                         {"effect", variable.effect},
                         {"entries", json_list(variable.entries, to_json)}});
  }
  return {{"devices", devices}, {"variables", variables}, {"warnings", visibility.warnings}};
}

}  // namespace yoke::view
