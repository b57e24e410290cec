#include "state_defaults.h"

#include <cstdint>
#include <cstdio>
#include <string>

namespace yoke::fake_nvml {
namespace {

using Json = nlohmann::json;

// An idle GPU of a DGX A100 with driver 580. null means that this model does not support the field.
constexpr const char* kDevice = R"({
  "name": "NVIDIA A100-SXM4-80GB",
  "uuid": "", "serial": "", "pci_bus_id": "", "minor_number": 0,
  "pci_device_id": 548540638, "pci_subsystem_id": 348065502,
  "vbios": "92.00.45.00.03", "board_part_number": "692-2G506-0210-002",
  "brand": 14, "architecture": 7, "compute_capability": "8.0", "cores": 6912, "memory_bus_bits": 5120,
  "memory_mib": {"total": 81920, "reserved": 617.1875, "used": 4},
  "bar1_mib": {"total": 131072, "used": 1},
  "utilization_percent": {"gpu": 0, "memory": 0, "encoder": 0, "decoder": 0, "jpeg": 0, "ofa": 0},
  "temperature_celsius": 30, "memory_temperature_celsius": 28,
  "temperature_thresholds_celsius": {"shutdown": 92, "slowdown": 89, "memory_max": 95, "gpu_max": 85},
  "fan_percent": null, "num_fans": 0,
  "power_mw": 60000,
  "power_limit_mw": {"enforced": 400000, "management": 400000, "default": 400000, "min": 100000, "max": 400000},
  "energy_mj": {"start": 1000000000, "per_second": 60000},
  "clocks_mhz": {"graphics": 210, "sm": 210, "memory": 1593, "video": 585},
  "max_clocks_mhz": {"graphics": 1410, "sm": 1410, "memory": 1593, "video": 1290},
  "clock_event_reasons": 1, "supported_clock_event_reasons": 511,
  "performance_state": 0, "persistence_mode": 1, "compute_mode": 0, "display_mode": 0, "display_active": 0,
  "ecc": {"mode": 1, "pending": 1,
          "volatile": {"corrected": 0, "uncorrected": 0}, "aggregate": {"corrected": 0, "uncorrected": 0}},
  "retired_pages": {"single_bit": null, "double_bit": null, "pending": null},
  "remapped_rows": {"corrected": 0, "uncorrected": 0, "pending": 0, "failure": 0},
  "pcie": {"generation": 4, "generation_max": 4, "width": 16, "width_max": 16, "replays": 0,
           "rx_kib_per_second": 0, "tx_kib_per_second": 0},
  "numa_node": 0, "cpu_affinity": "0-31", "gpu_numa_node": null,
  "nvlinks": [], "nvlink": {"version": 3, "speed_mbps": 25781, "errors": 0, "rx_kib": 0, "tx_kib": 0},
  "mig": {"mode": 0, "pending": 0, "max_instances": 7, "instances": []},
  "processes": [], "touched_when_listed": null, "xids": [], "fields": {},
  "error": null, "errors": {}, "hang_s": {}
})";

constexpr const char* kInstance = R"({
  "profile": "", "name": "", "uuid": "", "gpu_instance": 0, "compute_instance": 0,
  "memory_mib": {"total": 0, "reserved": 0, "used": 0}, "bar1_mib": {"total": 0, "used": 0},
  "attributes": {"multiprocessors": 0, "copy_engines": 0, "decoders": 0, "encoders": 0, "jpeg": 0, "ofa": 0,
                 "gpu_slices": 0, "compute_slices": 0},
  "compute_capability": "", "processes": [], "error": null, "errors": {}, "hang_s": {}
})";

// The fields at the top level. The contents of devices, defaults and overrides are checked separately.
constexpr const char* kRoot = R"({
  "driver_version": "", "nvml_version": "", "cuda_version": "", "devices": 1, "defaults": {}, "overrides": {},
  "since": 0, "step_s": 1, "init": "success", "errors": {}, "hang_s": {}, "topology": [], "p2p": [],
  "process_entry_bytes": 24
})";

constexpr const char* kProcess = R"({"pid": 0, "memory_mib": 0, "type": "C", "gpu_instance": 0, "compute_instance": 0,
  "sm": 0, "memory": 0, "encoder": 0, "decoder": 0})";

/// Returns pseudo-random numbers (splitmix64), which are the same in every run.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::string uuid_of(const char* kind, uint64_t seed) {
  const uint64_t high = mix(seed), low = mix(seed + 0x10000);
  char text[64];
  std::snprintf(text, sizeof text, "%s-%08x-%04x-4%03x-a%03x-%012llx", kind, static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xffff), static_cast<unsigned>(high & 0xfff),
                static_cast<unsigned>(low >> 48 & 0xfff), static_cast<unsigned long long>(low & 0xffffffffffff));
  return text;
}

Json& known(const char* text) { return *new Json(Json::parse(text)); }

}  // namespace

const Json& known_root() {
  static const Json& fields = known(kRoot);
  return fields;
}

const Json& known_device() {
  static const Json& fields = known(kDevice);
  return fields;
}

const Json& known_instance() {
  static const Json& fields = known(kInstance);
  return fields;
}

const Json& known_process() {
  static const Json& fields = known(kProcess);
  return fields;
}

Json default_device(size_t index) {
  Json device = known_device();
  device["uuid"] = uuid_of("GPU", index);
  device["serial"] = std::to_string(1320221000000 + index);
  char bus_id[32];  // 80 devices per PCI domain, on every third bus
  std::snprintf(bus_id, sizeof bus_id, "%08X:%02X:00.0", static_cast<unsigned>(index / 80),
                static_cast<unsigned>(1 + 3 * (index % 80)));
  device["pci_bus_id"] = bus_id;
  device["minor_number"] = index;
  return device;
}

void complete_instances(Json& device) {
  const auto mig = device.find("mig");
  if (mig == device.end() || !mig->is_object() || !mig->contains("instances")) return;
  Json& instances = (*mig)["instances"];
  if (!instances.empty() && !mig->value("mode", 0)) (*mig)["mode"] = (*mig)["pending"] = 1;
  for (size_t i = 0; i < instances.size(); ++i) {
    Json& instance = instances[i];
    if (!instance.is_object()) continue;  // null means that no instance has this number
    const std::string profile = instance.value("profile", "1g.10gb");
    unsigned slices = 1, gib = 10;
    std::sscanf(profile.c_str(), "%ug.%ugb", &slices, &gib);
    const Json follows = {
        {"name", device.value("name", "") + " MIG " + profile},
        {"uuid", "MIG-" + uuid_of("", std::hash<std::string>{}(device.value("uuid", "")) + 1 + i).substr(1)},
        {"gpu_instance", i + 1},
        {"compute_instance", 0},
        {"compute_capability", device.value("compute_capability", "8.0")},
        {"memory_mib", {{"total", gib * 1024 - 512}, {"reserved", 0}, {"used", 19}}},
        {"bar1_mib", {{"total", 32767}, {"used", 0}}},
        {"attributes",
         {{"multiprocessors", 14 * slices},
          {"copy_engines", slices},
          {"decoders", slices / 2},
          {"encoders", 0},
          {"jpeg", 0},
          {"ofa", 0},
          {"gpu_slices", slices},
          {"compute_slices", slices}}},
        {"processes", Json::array()}};
    Json complete = follows;
    complete.merge_patch(instance);
    instance = std::move(complete);
  }
}

}  // namespace yoke::fake_nvml
