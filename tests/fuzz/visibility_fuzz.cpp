// Puts any bytes into the variables that hide devices, on five machines, and checks properties of every result.
//
// Input: a byte that chooses the machine, a byte that chooses variables, then their values, separated by NULs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/device/selection.h"
#include "yoke/device/visibility/detail/rules.h"
#include "yoke/device/visibility/set.h"
#include "yoke/device/visibility/visibility.h"

namespace {

using namespace yoke;          // NOLINT(google-build-using-namespace): a program of one file
using namespace yoke::device;  // NOLINT(google-build-using-namespace)

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

Device gpu(Vendor vendor, const char* uuid, const char* model = "one") {
  Device device;
  device.vendor = vendor;
  device.facts.uuid = uuid;
  device.facts.name = model;
  return device;
}

Snapshot machine(std::vector<Device> devices, const char* driver) {
  Snapshot snapshot;
  snapshot.backends.push_back({"nvml", true, true, "", driver, ""});
  snapshot.devices = std::move(devices);
  snapshot.devices.emplace_back();
  for (size_t i = 0; i < snapshot.devices.size(); ++i) {
    auto& device = snapshot.devices[i];
    device.index = static_cast<int64_t>(i);
    if (device.facts.name != "display") device.facts.vendor_index = device.index;
    for (size_t j = 0; j < device.instances.size(); ++j) {
      device.instances[j].vendor = device.vendor;
      device.instances[j].index = static_cast<int64_t>(j);
    }
  }
  return snapshot;
}

std::vector<Snapshot> make_machines() {
  const auto nvidia = [](const char* uuid, const char* model = "one") { return gpu(Vendor::kNvidia, uuid, model); };
  const auto amd = [](const char* uuid) { return gpu(Vendor::kAmd, uuid); };
  auto with_mig = std::vector{nvidia("GPU-a00"), nvidia("GPU-b11"), nvidia("GPU-c22")};
  with_mig[1].instances = {nvidia("MIG-100"), nvidia("MIG-111"), nvidia("MIG-112")};
  for (size_t i = 0; i < 3; ++i) {
    with_mig[1].instances[i].facts.gpu_instance = i == 0 ? 1 : 2;
    with_mig[1].instances[i].facts.compute_instance = i == 2 ? 1 : 0;
  }
  with_mig[2].readings.mig_enabled = true;
  return {
      machine({nvidia("GPU-a00"), nvidia("GPU-a11"), nvidia("GPU-b22"), nvidia("GPU-c33")}, "535.1"),
      machine({nvidia("GPU-a00"), nvidia("GPU-b11", "two"), nvidia("GPU-c22", "three")}, ""),
      machine(with_mig, "535.1"),
      machine(with_mig, "570.1"),
      machine({nvidia("GPU-a00"), nvidia("GPU-b11"), amd("GPU-00aa000000000001"), amd("GPU-00ab000000000002"), amd(""),
               gpu(Vendor::kAmd, "GPU-00ac000000000003", "display")},
              "580.1"),
  };
}

Environment read_environment(const uint8_t* data, size_t size) {
  const std::vector<std::string> names = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",       "NVIDIA_VISIBLE_DEVICES",
                                          "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",     "GPU_DEVICE_ORDINAL",
                                          "ZE_AFFINITY_MASK",     "ZE_FLAT_DEVICE_HIERARCHY"};
  Environment environment;
  const unsigned which = data[0];
  const auto* value = data + 1;
  const auto* end = data + size;
  for (size_t i = 0; i < names.size(); ++i) {
    if (((which >> i) & 1U) == 0) continue;
    const auto* stop = std::find(value, end, uint8_t{0});
    environment.set(names[i], std::string(value, stop));
    value = stop == end ? end : stop + 1;
  }
  return environment;
}

void check_entries(const std::string& value, const std::vector<Entry>& entries) {
  check(entries.size() <= static_cast<size_t>(std::count(value.begin(), value.end(), ',')) + 1, "an entry a comma");
  for (const auto& entry : entries) {
    check(value.find(entry.text) != value.npos, "entries are parts of the value");
    check(!entry.why.empty(), "each entry is explained");
  }
}

std::string id_of_row(const DeviceVisibility& row) {
  return row.instance ? fmt::format("{}:{}", row.index, *row.instance) : fmt::format("{}", row.index);
}

std::vector<std::string> shown(const Visibility& visibility) {
  std::vector<std::string> ids;
  for (const auto& row : visibility.devices) {
    if (row.ordinal) ids.push_back(id_of_row(row));
  }
  return ids;
}

size_t num_units(const Snapshot& snapshot) {
  size_t count = 0;
  for (const auto& device : snapshot.devices) {
    if (device.vendor != Vendor::kCpu) count += std::max<size_t>(1, device.instances.size());
  }
  return count;
}

void check_visibility(const Visibility& result, const Snapshot& snapshot) {
  std::set<std::string> ids;
  std::map<Vendor, int64_t> next;
  for (const auto& row : result.devices) {
    const auto id = id_of_row(row);
    check(ids.insert(id).second, "no device twice");
    check(find_device(snapshot, id).vendor == row.vendor, "each row is a device");
    check(row.ordinal.has_value() == row.reason.empty(), "what is hidden has a reason");
    if (row.ordinal) check(*row.ordinal == next[row.vendor]++, "ordinals count from 0");
  }
  check(ids.size() == num_units(snapshot), "every device has a row");
  for (const auto& variable : result.variables) {
    check_entries(variable.value, variable.entries);
    check(!variable.effect.empty(), "each variable is explained");
  }
  for (const auto& line : result.warnings) {
    const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
    check(std::none_of(line.begin(), line.end(), is_control), "warnings are printable");
  }
}

/// Checks that a program which gets the names of the visible devices sees the same devices.
void check_round_trip(const Visibility& result, const Environment& environment, const Snapshot& snapshot) {
  const auto before = shown(result);
  std::string selection;
  for (const auto& id : before) selection += (selection.empty() ? "" : ",") + id;
  const auto with_instance =
      std::count_if(before.begin(), before.end(), [](const std::string& id) { return id.find(':') != id.npos; });
  // A list cannot name both GPUs and MIG instances, but without a list a program may see both.
  const auto num_nvidia = std::count_if(result.devices.begin(), result.devices.end(), [](const DeviceVisibility& row) {
    return row.ordinal && row.vendor == Vendor::kNvidia;
  });
  if (with_instance != 0 && with_instance != num_nvidia) return;
  auto changed = environment;
  assign(assignments_for(before.empty() ? "none" : selection, IdFormat::kUuid, environment, snapshot), changed);
  check(shown(visibility(changed, snapshot)) == before, "the devices seen, set by UUID, are seen again");
  if (with_instance != 0) return;
  auto numbered = environment;
  assign(assignments_for(before.empty() ? "none" : selection, IdFormat::kIndex, environment, snapshot), numbered);
  check(shown(visibility(numbered, snapshot)) == before, "the devices seen, set by number, are seen again");
}

void check_units(const Selection& selection, bool is_sorted) {
  check(std::set<Unit>(selection.units.begin(), selection.units.end()).size() == selection.units.size(),
        "no unit twice");
  check(!is_sorted || std::is_sorted(selection.units.begin(), selection.units.end()), "units in device order");
}

void check_other_rules(const Environment& environment, const Snapshot& snapshot) {
  Gpus nvidia;
  for (const auto& device : snapshot.devices) {
    if (device.vendor == Vendor::kNvidia) nvidia.push_back(&device);
  }
  check_units(select_for_container(environment.value_or("NVIDIA_VISIBLE_DEVICES", ""), nvidia), true);
  for (const auto* hierarchy : {"FLAT", "COMPOSITE"}) {
    const auto mask = environment.value_or("ZE_AFFINITY_MASK", "");
    const auto selection = select_level_zero(mask, {4, 1, 2}, hierarchy);
    check_units(selection, true);
    check_entries(mask, selection.entries);
    for (const auto& unit : selection.units) check(unit.device >= 0 && unit.device < 3, "cards that exist");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto machines = make_machines();
  if (size < 2) return 0;
  const auto& snapshot = machines[data[0] % machines.size()];
  const auto environment = read_environment(data + 1, size - 1);
  const auto result = visibility(environment, snapshot);
  check_visibility(result, snapshot);
  check(shown(visibility(environment, snapshot)) == shown(result), "the same again");
  check_round_trip(result, environment, snapshot);
  check_other_rules(environment, snapshot);
  try {
    assignments_for(environment.value_or("CUDA_VISIBLE_DEVICES", ""), IdFormat::kUuid, environment, snapshot);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a refusal is a valid result
  }
  return 0;
}
