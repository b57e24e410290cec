// The fake's functions that read a device. Most of them return one number in the state.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "call.h"

namespace yoke::fake_nvml {
namespace {

constexpr double kMib = 1 << 20;

/// Returns a size in bytes; the state has sizes in MiB.
Answer bytes(const Target& target, const char* group, const char* name) {
  Answer answer = target.number(group, name);
  if (answer.status == kSuccess) answer.number = std::round(answer.number * kMib);
  return answer;
}

int memory_now(const Target& target, MemoryV2& memory) {
  const Answer total = bytes(target, "memory_mib", "total"), used = bytes(target, "memory_mib", "used"),
               reserved = bytes(target, "memory_mib", "reserved");
  for (const Answer& answer : {total, used}) {
    if (answer.status != kSuccess) return answer.status;
  }
  memory.total = static_cast<Wide>(total.number);
  memory.reserved = reserved.status == kSuccess ? static_cast<Wide>(reserved.number) : 0;
  memory.used = static_cast<Wide>(used.number);
  memory.free = memory.total - std::min(memory.total, memory.used + memory.reserved);
  return kSuccess;
}

int number(const char* function, Handle handle, const char* name, auto* out) {
  return on_device(function, handle, [&](const Target& target) { return store(target.number(name), out); });
}

int number(const char* function, Handle handle, const char* group, const char* name, auto* out) {
  return on_device(function, handle, [&](const Target& target) { return store(target.number(group, name), out); });
}

/// Returns the number in the field `names[which]`; the order of `names` is that of an enumeration in nvml.h.
template <size_t count>
int choice(const char* function, Handle handle, const char* group, const char* const (&names)[count], unsigned which,
           auto* out) {
  return on_device(function, handle, [&](const Target& target) -> int {
    if (which >= count) return kInvalidArgument;
    return names[which] == nullptr ? kNotSupported : store(target.number(group, names[which]), out);
  });
}

int text(const char* function, Handle handle, const char* name, char* out, Size length) {
  return on_device(function, handle,
                   [&](const Target& target) { return store_text(member(target.fields, name), out, length); });
}

/// Returns two numbers that NVML gives together, such as a current and a pending mode.
int pair(const char* function, Handle handle, const char* group, const char* first, const char* second, Size* a,
         Size* b) {
  return on_device(function, handle, [&](const Target& target) {
    const int status = store(target.number(group, first), a);
    return status == kSuccess ? store(target.number(group, second), b) : status;
  });
}

/// Returns the utilisation of an engine. As with NVML, it is not available for a device with MIG instances.
int engine(const char* function, Handle handle, const char* name, Size* percent, Size* period_us) {
  return on_device(function, handle, [&](const Target& target) -> int {
    if (target.has_instances()) return kNotSupported;
    if (period_us == nullptr) return kInvalidArgument;
    *period_us = 167000;
    return store(target.number("utilization_percent", name), percent);
  });
}

constexpr const char* kClocks[] = {"graphics", "sm", "memory", "video"};
constexpr const char* kThresholds[] = {"shutdown", "slowdown", "memory_max", "gpu_max"};
constexpr const char* kErrorTypes[] = {"corrected", "uncorrected"};
constexpr const char* kCounters[] = {"volatile", "aggregate"};

int ecc_errors(const Target& target, unsigned type, unsigned counter, Wide* count) {
  if (type > 1 || counter > 1) return kInvalidArgument;
  const Json& ecc = member(target.fields, "ecc");
  const Answer mode = resolve(target.state, member(ecc, "mode"));
  if (mode.status != kSuccess || mode.number == 0) return kNotSupported;
  return store(resolve(target.state, member(ecc, kCounters[counter], kErrorTypes[type])), count);
}

}  // namespace
}  // namespace yoke::fake_nvml

using namespace yoke::fake_nvml;  // NOLINT: only definitions of the C interface follow

extern "C" {

int nvmlDeviceGetName(Handle device, char* name, Size length) { return text(__func__, device, "name", name, length); }
int nvmlDeviceGetUUID(Handle device, char* uuid, Size length) { return text(__func__, device, "uuid", uuid, length); }
int nvmlDeviceGetSerial(Handle device, char* serial, Size length) {
  return text(__func__, device, "serial", serial, length);
}
int nvmlDeviceGetVbiosVersion(Handle device, char* version, Size length) {
  return text(__func__, device, "vbios", version, length);
}
int nvmlDeviceGetBoardPartNumber(Handle device, char* part, Size length) {
  return text(__func__, device, "board_part_number", part, length);
}

int nvmlDeviceGetIndex(Handle device, Size* index) {
  return on_device(__func__, device, [&](const Target& target) {
    const auto of_instance = static_cast<size_t>(target.place.instance);
    return store({kSuccess, static_cast<double>(target.is_instance() ? of_instance : target.place.device)}, index);
  });
}

int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* pci) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (pci == nullptr) return kInvalidArgument;
    const Json& bus_id = member(target.fields, "pci_bus_id");
    if (!bus_id.is_string()) return kNotSupported;
    PciInfo info = pci_info(bus_id.get_ref<const std::string&>());
    store(target.number("pci_device_id"), &info.device_id);
    store(target.number("pci_subsystem_id"), &info.subsystem_id);
    *pci = info;
    return kSuccess;
  });
}

int nvmlDeviceGetMinorNumber(Handle device, Size* out) { return number(__func__, device, "minor_number", out); }
int nvmlDeviceGetBrand(Handle device, Size* out) { return number(__func__, device, "brand", out); }
int nvmlDeviceGetArchitecture(Handle device, Size* out) { return number(__func__, device, "architecture", out); }
int nvmlDeviceGetNumGpuCores(Handle device, Size* out) { return number(__func__, device, "cores", out); }
int nvmlDeviceGetMemoryBusWidth(Handle device, Size* out) { return number(__func__, device, "memory_bus_bits", out); }

int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    const Json& version = member(target.fields, "compute_capability");
    if (major == nullptr || minor == nullptr) return kInvalidArgument;
    if (!version.is_string()) return kNotSupported;
    return std::sscanf(version.get_ref<const std::string&>().c_str(), "%d.%d", major, minor) == 2 ? kSuccess : kUnknown;
  });
}

int nvmlDeviceGetMemoryInfo(Handle device, Memory* memory) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (memory == nullptr) return kInvalidArgument;
    MemoryV2 full{};
    const int status = memory_now(target, full);
    if (status == kSuccess) *memory = {full.total, full.free, full.total - full.free};
    return status;
  });
}

int nvmlDeviceGetMemoryInfo_v2(Handle device, MemoryV2* memory) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (memory == nullptr) return kInvalidArgument;
    if (memory->version != versioned(sizeof(MemoryV2), 2)) return kArgumentVersionMismatch;
    return memory_now(target, *memory);
  });
}

int nvmlDeviceGetBAR1MemoryInfo(Handle device, Bar1Memory* memory) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (memory == nullptr) return kInvalidArgument;
    const Answer total = bytes(target, "bar1_mib", "total"), used = bytes(target, "bar1_mib", "used");
    if (total.status != kSuccess) return total.status;
    if (used.status != kSuccess) return used.status;
    memory->total = static_cast<Wide>(total.number);
    memory->used = static_cast<Wide>(used.number);
    memory->free = memory->total - std::min(memory->total, memory->used);
    return kSuccess;
  });
}

int nvmlDeviceGetUtilizationRates(Handle device, Utilization* utilization) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (utilization == nullptr) return kInvalidArgument;
    if (target.has_instances()) return kNotSupported;
    const int status = store(target.number("utilization_percent", "gpu"), &utilization->gpu);
    return status == kSuccess ? store(target.number("utilization_percent", "memory"), &utilization->memory) : status;
  });
}

int nvmlDeviceGetEncoderUtilization(Handle device, Size* percent, Size* period_us) {
  return engine(__func__, device, "encoder", percent, period_us);
}
int nvmlDeviceGetDecoderUtilization(Handle device, Size* percent, Size* period_us) {
  return engine(__func__, device, "decoder", percent, period_us);
}
int nvmlDeviceGetJpgUtilization(Handle device, Size* percent, Size* period_us) {
  return engine(__func__, device, "jpeg", percent, period_us);
}
int nvmlDeviceGetOfaUtilization(Handle device, Size* percent, Size* period_us) {
  return engine(__func__, device, "ofa", percent, period_us);
}

int nvmlDeviceGetTemperature(Handle device, int sensor, Size* celsius) {
  if (sensor != 0) return kInvalidArgument;
  return number(__func__, device, "temperature_celsius", celsius);
}

int nvmlDeviceGetTemperatureV(Handle device, Temperature* temperature) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (temperature == nullptr || temperature->sensor != 0) return kInvalidArgument;
    if (temperature->version != versioned(sizeof(Temperature), 1)) return kArgumentVersionMismatch;
    return store(target.number("temperature_celsius"), &temperature->celsius);
  });
}

int nvmlDeviceGetTemperatureThreshold(Handle device, Size which, Size* celsius) {
  return choice(__func__, device, "temperature_thresholds_celsius", kThresholds, which, celsius);
}

int nvmlDeviceGetFanSpeed(Handle device, Size* percent) { return number(__func__, device, "fan_percent", percent); }
int nvmlDeviceGetNumFans(Handle device, Size* count) { return number(__func__, device, "num_fans", count); }

int nvmlDeviceGetFanSpeed_v2(Handle device, Size fan, Size* percent) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    const Answer count = target.number("num_fans");
    if (count.status != kSuccess || fan >= count.number) return kInvalidArgument;
    return store(target.number("fan_percent"), percent);
  });
}

int nvmlDeviceGetPowerUsage(Handle device, Size* power_mw) { return number(__func__, device, "power_mw", power_mw); }
int nvmlDeviceGetEnforcedPowerLimit(Handle device, Size* limit_mw) {
  return number(__func__, device, "power_limit_mw", "enforced", limit_mw);
}
int nvmlDeviceGetPowerManagementLimit(Handle device, Size* limit_mw) {
  return number(__func__, device, "power_limit_mw", "management", limit_mw);
}
int nvmlDeviceGetPowerManagementDefaultLimit(Handle device, Size* limit_mw) {
  return number(__func__, device, "power_limit_mw", "default", limit_mw);
}
int nvmlDeviceGetPowerManagementLimitConstraints(Handle device, Size* min_mw, Size* max_mw) {
  return pair(__func__, device, "power_limit_mw", "min", "max", min_mw, max_mw);
}
int nvmlDeviceGetTotalEnergyConsumption(Handle device, Wide* energy_mj) {
  return number(__func__, device, "energy_mj", energy_mj);
}

int nvmlDeviceGetClockInfo(Handle device, Size type, Size* mhz) {
  return choice(__func__, device, "clocks_mhz", kClocks, type, mhz);
}
int nvmlDeviceGetMaxClockInfo(Handle device, Size type, Size* mhz) {
  return choice(__func__, device, "max_clocks_mhz", kClocks, type, mhz);
}
int nvmlDeviceGetCurrentClocksEventReasons(Handle device, Wide* reasons) {
  return number(__func__, device, "clock_event_reasons", reasons);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle device, Wide* reasons) {
  return number(__func__, device, "clock_event_reasons", reasons);
}
int nvmlDeviceGetSupportedClocksEventReasons(Handle device, Wide* reasons) {
  return number(__func__, device, "supported_clock_event_reasons", reasons);
}
int nvmlDeviceGetSupportedClocksThrottleReasons(Handle device, Wide* reasons) {
  return number(__func__, device, "supported_clock_event_reasons", reasons);
}

int nvmlDeviceGetPerformanceState(Handle device, Size* out) {
  return number(__func__, device, "performance_state", out);
}
int nvmlDeviceGetPersistenceMode(Handle device, Size* out) { return number(__func__, device, "persistence_mode", out); }
int nvmlDeviceGetComputeMode(Handle device, Size* out) { return number(__func__, device, "compute_mode", out); }
int nvmlDeviceGetDisplayMode(Handle device, Size* out) { return number(__func__, device, "display_mode", out); }
int nvmlDeviceGetDisplayActive(Handle device, Size* out) { return number(__func__, device, "display_active", out); }

int nvmlDeviceGetEccMode(Handle device, Size* current, Size* pending) {
  return pair(__func__, device, "ecc", "mode", "pending", current, pending);
}

int nvmlDeviceGetTotalEccErrors(Handle device, Size type, Size counter, Wide* count) {
  return on_device(__func__, device, [&](const Target& target) { return ecc_errors(target, type, counter, count); });
}

int nvmlDeviceGetMemoryErrorCounter(Handle device, Size type, Size counter, Size location, Wide* count) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    const int status = ecc_errors(target, type, counter, count);
    if (status == kSuccess && location != 2) *count = 0;  // the state has only errors of device memory
    return status;
  });
}

int nvmlDeviceGetRetiredPages(Handle device, Size cause, Size* count, Wide* addresses) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (cause > 1 || count == nullptr) return kInvalidArgument;
    Size num_pages = 0;
    const int status = store(target.number("retired_pages", cause == 0 ? "single_bit" : "double_bit"), &num_pages);
    if (status != kSuccess) return status;
    const bool fits = *count >= num_pages;
    *count = num_pages;
    if (!fits) return kInsufficientSize;
    if (num_pages > 0 && addresses == nullptr) return kInvalidArgument;
    for (Size i = 0; i < num_pages; ++i) addresses[i] = 0x10000ULL * (i + 1);
    return kSuccess;
  });
}

int nvmlDeviceGetRetiredPagesPendingStatus(Handle device, Size* pending) {
  return number(__func__, device, "retired_pages", "pending", pending);
}

int nvmlDeviceGetRemappedRows(Handle device, Size* corrected, Size* uncorrected, Size* pending, Size* failure) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (target.has_instances()) return kNotSupported;
    const struct {
      const char* name;
      Size* out;
    } parts[] = {{"corrected", corrected}, {"uncorrected", uncorrected}, {"pending", pending}, {"failure", failure}};
    for (const auto& part : parts) {
      const int status = store(target.number("remapped_rows", part.name), part.out);
      if (status != kSuccess) return status;
    }
    return kSuccess;
  });
}

int nvmlDeviceGetCurrPcieLinkGeneration(Handle device, Size* out) {
  return number(__func__, device, "pcie", "generation", out);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Handle device, Size* out) {
  return number(__func__, device, "pcie", "generation_max", out);
}
int nvmlDeviceGetCurrPcieLinkWidth(Handle device, Size* out) { return number(__func__, device, "pcie", "width", out); }
int nvmlDeviceGetMaxPcieLinkWidth(Handle device, Size* out) {
  return number(__func__, device, "pcie", "width_max", out);
}
int nvmlDeviceGetPcieReplayCounter(Handle device, Size* out) {
  return number(__func__, device, "pcie", "replays", out);
}
int nvmlDeviceGetPcieThroughput(Handle device, Size counter, Size* kib_per_second) {
  constexpr const char* kDirections[] = {"tx_kib_per_second", "rx_kib_per_second"};
  return choice(__func__, device, "pcie", kDirections, counter, kib_per_second);
}

}  // extern "C"
