#include "yoke/device/visibility/visibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "yoke/device/visibility/detail/warnings.h"

namespace yoke::device {
namespace {

const Entry* entry_of(const Selection& selection, const Unit& unit) {
  for (const auto& entry : selection.entries) {
    if (entry.unit == unit || (entry.unit && !entry.unit->instance && entry.unit->device == unit.device)) return &entry;
  }
  return nullptr;
}

/// Explains why `unit` is not in `selection`, the result of `variable`.
std::string why_hidden(const Selection& selection, const std::string& variable, bool is_set, const Unit& unit,
                       const Gpus& gpus) {
  const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
  if (is_mig(gpu) && gpu.instances.empty()) return "it is in MIG mode and has no instance";
  const auto* entry = entry_of(selection, unit);
  if (entry != nullptr && entry->verdict != Verdict::kVisible) {
    return fmt::format("{}: {} is {}, {}", variable,
                       entry_number(static_cast<size_t>(entry - selection.entries.data())), name(entry->verdict),
                       entry->why);
  }
  const bool shows_instances =
      std::ranges::any_of(selection.units, [](const Unit& shown) { return shown.instance.has_value(); });
  if (shows_instances && (!is_set || entry != nullptr)) {
    return "CUDA programs see other MIG instances, and not this one beside them";
  }
  if (selection.entries.empty()) return fmt::format("{} is empty", variable);
  return fmt::format("{} does not name it", variable);
}

/// All units: GPUs, or their instances if they are in MIG mode.
std::vector<Unit> all_units(const Gpus& gpus) {
  std::vector<Unit> units;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const auto device = static_cast<int64_t>(i);
    if (gpus[i]->instances.empty()) units.push_back({device, {}});
    for (size_t j = 0; j < gpus[i]->instances.size(); ++j) units.push_back({device, static_cast<int64_t>(j)});
  }
  return units;
}

bool is_certain(const Selection& selection) {
  return selection.is_certain &&
         std::ranges::all_of(selection.entries, [](const Entry& entry) { return entry.is_certain; });
}

DeviceVisibility to_row(const Unit& unit, const Gpus& gpus) {
  const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
  const auto id = unit.instance ? id_of(gpu, gpu.instances[static_cast<size_t>(*unit.instance)]) : id_of(gpu);
  return {.index = gpu.index, .instance = unit.instance, .vendor = gpu.vendor, .id = id};
}

void add_visible(const Selection& selection, const Gpus& gpus, std::vector<DeviceVisibility>& rows) {
  int64_t ordinal = 0;
  for (const auto& unit : selection.units) {
    auto row = to_row(unit, gpus);
    row.ordinal = ordinal++;
    const auto* entry = entry_of(selection, unit);
    row.is_certain = entry != nullptr ? entry->is_certain : selection.is_certain;
    rows.push_back(std::move(row));
  }
}

void add_hidden_nvidia(const Selections& all, bool is_set, std::vector<DeviceVisibility>& rows) {
  for (const auto& unit : all_units(all.nvidia)) {
    const auto& shown = all.cuda.units;
    if (std::ranges::find(shown, unit) != shown.end()) continue;
    auto row = to_row(unit, all.nvidia);
    row.is_certain = is_certain(all.cuda);
    row.reason = why_hidden(all.cuda, "CUDA_VISIBLE_DEVICES", is_set, unit, all.nvidia);
    rows.push_back(std::move(row));
  }
}

void add_hidden_amd(const Selections& all, std::vector<DeviceVisibility>& rows) {
  for (size_t i = 0; i < all.amd.size(); ++i) {
    const Unit unit{static_cast<int64_t>(i), {}};
    const auto& left = all.rocr.units;
    const auto place = std::ranges::find(left, unit);
    const Unit renumbered{place - left.begin(), {}};
    const auto& shown = all.hip.units;
    if (place != left.end() && std::ranges::find(shown, renumbered) != shown.end()) continue;
    auto row = to_row(unit, all.amd);
    row.reason = place == left.end() ? why_hidden(all.rocr, "ROCR_VISIBLE_DEVICES", true, unit, all.amd)
                                     : why_hidden(all.hip, all.hip_variable, true, renumbered, all.amd_left);
    rows.push_back(std::move(row));
  }
  for (size_t i = 0; i < all.amd_without_kfd.size(); ++i) {
    rows.push_back(to_row({static_cast<int64_t>(i), {}}, all.amd_without_kfd));
    rows.back().reason = "KFD does not list it, so programs cannot compute on it";
  }
}

/// Converts positions among `gpus` to Device::index.
std::vector<Entry> with_indices(std::vector<Entry> entries, const Gpus& gpus) {
  for (auto& entry : entries) {
    if (entry.unit) entry.unit->device = gpus[static_cast<size_t>(entry.unit->device)]->index;
  }
  return entries;
}

Variable cuda_visible_devices(const std::string& value, const Selections& all) {
  Variable result{"CUDA_VISIBLE_DEVICES", value, true, all.cuda.effect, with_indices(all.cuda.entries, all.nvidia)};
  const bool for_hip = !all.amd.empty() && all.hip_variable == result.name;
  if (!all.nvidia.empty()) {
    if (for_hip) result.effect += "; HIP programs read it too, in HIP's way";
  } else if (for_hip) {
    result.effect = "in place of HIP_VISIBLE_DEVICES: " + all.hip.effect;
    result.entries = with_indices(all.hip.entries, all.amd_left);
  } else {
    result.has_effect = false;
    result.effect = all.amd.empty() ? "no effect: there is no NVIDIA GPU here"
                                    : "no effect: there is no NVIDIA GPU, and HIP_VISIBLE_DEVICES is set";
    result.entries.clear();
  }
  return result;
}

Variable amd_variable(const std::string& name, const std::string& value, const Selections& all) {
  const bool is_rocr = name == "ROCR_VISIBLE_DEVICES";
  const auto& selection = is_rocr ? all.rocr : all.hip;
  if (all.amd.empty()) return {name, value, false, "no effect: there is no AMD GPU here", {}};
  if (!is_rocr && all.hip_variable != name) return {name, value, false, "empty: CUDA_VISIBLE_DEVICES is read", {}};
  return {name, value, true, selection.effect, with_indices(selection.entries, is_rocr ? all.amd : all.amd_left)};
}

std::vector<Variable> variables(const Environment& environment, const Selections& all) {
  std::vector<Variable> result;
  const auto if_set = [&](const std::string& name, auto&& describe) {
    if (const auto value = environment.find(name)) result.push_back(describe(name, *value));
  };
  if_set("CUDA_VISIBLE_DEVICES", [&](auto&, auto& value) { return cuda_visible_devices(value, all); });
  if_set("CUDA_DEVICE_ORDER", [&](auto& name, auto& value) {
    const bool is_known = value == "PCI_BUS_ID" || value == "FASTEST_FIRST";
    const auto* effect = value == "PCI_BUS_ID" ? "CUDA numbers GPUs as nvidia-smi and `yoke devices` do"
                         : is_known ? "CUDA numbers the fastest GPU 0; the order of the others is not defined"
                                    : "no effect expected: not a value that CUDA documents";
    return Variable{name, value, is_known && !all.nvidia.empty(), effect, {}};
  });
  if_set("NVIDIA_VISIBLE_DEVICES", [&](auto& name, auto& value) {
    const auto selection = select_for_container(value, all.nvidia);
    return Variable{name, value, false, "no effect on programs started here; " + selection.effect,
                    all.nvidia.empty() ? std::vector<Entry>{} : with_indices(selection.entries, all.nvidia)};
  });
  for (const auto* name : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    if_set(name, [&](auto& text, auto& value) { return amd_variable(text, value, all); });
  }
  if_set("GPU_DEVICE_ORDINAL", [](auto& name, auto& value) {
    return Variable{name, value, false, "read by AMD's OpenCL, not by HIP", {}};
  });
  if_set("ZE_AFFINITY_MASK", [&](auto& name, auto& value) {
    const auto selection = select_level_zero(value, {}, environment.value_or("ZE_FLAT_DEVICE_HIERARCHY", "FLAT"));
    return Variable{name, value, false, "for Intel GPUs, which are not listed here; " + selection.effect,
                    selection.entries};
  });
  if_set("ZE_FLAT_DEVICE_HIERARCHY", [](auto& name, auto& value) {
    return Variable{
        name, value, false, "for Intel GPUs: whether tiles count as devices (FLAT) or cards (COMPOSITE)", {}};
  });
  return result;
}

}  // namespace

Visibility visibility(const Environment& environment, const Snapshot& snapshot) {
  const auto all = select_all(environment, snapshot);
  Visibility result;
  add_visible(all.cuda, all.nvidia, result.devices);
  add_visible(all.hip, all.amd_left, result.devices);
  add_hidden_nvidia(all, environment.contains("CUDA_VISIBLE_DEVICES"), result.devices);
  add_hidden_amd(all, result.devices);
  result.variables = variables(environment, all);
  result.warnings = warnings(environment, all);
  return result;
}

std::vector<std::string> contradictions(const Environment& environment, const Snapshot& snapshot) {
  return warnings(environment, select_all(environment, snapshot));
}

}  // namespace yoke::device
