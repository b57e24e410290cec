// The fake's field values by their numbers, and functions that only return "not supported".
#include <chrono>
#include <string>

#include "call.h"

namespace yoke::fake_nvml {
namespace {

/// A field whose value is a number in the state: in the object `group`, or at the top level if `group` is null.
struct Field {
  Size id;
  ValueType type;
  const char* group;
  const char* name;
};

constexpr Field kFields[] = {
    {1, kUnsigned, "ecc", "mode"},
    {2, kUnsigned, "ecc", "pending"},
    {29, kUnsigned, "retired_pages", "single_bit"},
    {30, kUnsigned, "retired_pages", "double_bit"},
    {31, kUnsigned, "retired_pages", "pending"},
    {82, kUnsigned, nullptr, "memory_temperature_celsius"},
    {83, kUnsignedLongLong, nullptr, "energy_mj"},
    {90, kUnsigned, "nvlink", "speed_mbps"},
    {94, kUnsigned, "pcie", "replays"},
    {142, kUnsigned, "remapped_rows", "corrected"},
    {143, kUnsigned, "remapped_rows", "uncorrected"},
    {144, kUnsigned, "remapped_rows", "pending"},
    {145, kUnsigned, "remapped_rows", "failure"},
    {185, kUnsigned, nullptr, "power_mw"},  // the average over one second
    {186, kUnsigned, nullptr, "power_mw"},  // the current power
    {187, kUnsigned, "power_limit_mw", "min"},
    {188, kUnsigned, "power_limit_mw", "max"},
    {189, kUnsigned, "power_limit_mw", "default"},
    {190, kUnsigned, "power_limit_mw", "enforced"},
    {191, kUnsignedLongLong, nullptr, "energy_mj"},
    {192, kUnsigned, "power_limit_mw", "management"},
};

constexpr Size kEccFirst = 3, kEccLast = 6;
constexpr Size kLinkSpeed0 = 84, kLinkSpeed5 = 89, kLinkSpeed6 = 132, kLinkSpeed11 = 137;
constexpr Size kLinkCount = 91, kSwitchLinkCount = 147;
constexpr Size kDataTx = 138, kDataRx = 139, kRawTx = 140, kRawRx = 141;
constexpr Size kLinkSpeed = 164, kLinkState = 165, kLinkVersion = 166;
constexpr Size kAllLinks = ~0U;

Answer of_links(const Target& target, Size id, Size scope) {
  const Json& links = member(target.fields, "nvlinks");
  if (links.empty()) return {kNotSupported, 0};
  size_t num_active = 0;
  for (const Json& link : links) num_active += link.is_null() ? 0 : 1;
  const auto of_link = [&](Size link, const char* name) -> Answer {
    if (link >= links.size()) return {kInvalidArgument, 0};
    if (links[link].is_null()) return {kSuccess, 0};
    return target.number("nvlink", name);
  };
  const auto throughput = [&](const char* name) -> Answer {
    if (scope != kAllLinks) return of_link(scope, name);
    const Answer one = target.number("nvlink", name);
    return {one.status, one.number * static_cast<double>(num_active)};
  };
  if (id >= kLinkSpeed0 && id <= kLinkSpeed5) return of_link(id - kLinkSpeed0, "speed_mbps");
  if (id >= kLinkSpeed6 && id <= kLinkSpeed11) return of_link(id - kLinkSpeed6 + 6, "speed_mbps");
  switch (id) {
    case kLinkCount: return {kSuccess, static_cast<double>(links.size())};
    case kSwitchLinkCount: {
      size_t num_to_switch = 0;
      for (const Json& link : links) num_to_switch += link.is_string() ? 1 : 0;
      return {kSuccess, static_cast<double>(num_to_switch)};
    }
    case kDataTx:
    case kRawTx: return throughput("tx_kib");
    case kDataRx:
    case kRawRx: return throughput("rx_kib");
    case kLinkSpeed: return of_link(scope, "speed_mbps");
    case kLinkState:
      if (scope >= links.size()) return {kInvalidArgument, 0};
      return {kSuccess, links[scope].is_null() ? 0.0 : 1.0};
    case kLinkVersion: return of_link(scope, "version");
    default: return {kNotSupported, 0};
  }
}

Answer of_field(const Target& target, Size id, Size scope, ValueType& type) {
  type = kUnsignedLongLong;
  const Json& given = member(target.fields, "fields", std::to_string(id).c_str());
  if (!given.is_null()) return resolve(target.state, given);
  for (const Field& field : kFields) {
    if (field.id != id) continue;
    type = field.type;
    return field.group == nullptr ? target.number(field.name) : target.number(field.group, field.name);
  }
  if (id >= kEccFirst && id <= kEccLast) {
    constexpr const char* kCounters[] = {"volatile", "aggregate"};
    constexpr const char* kTypes[] = {"corrected", "uncorrected"};
    const Json& ecc = member(target.fields, "ecc");
    return target.number(ecc, kCounters[(id - kEccFirst) / 2], kTypes[(id - kEccFirst) % 2]);
  }
  if (id == kLinkCount || id == kSwitchLinkCount || (id >= kLinkSpeed && id <= kLinkVersion)) type = kUnsigned;
  return of_links(target, id, scope);
}

}  // namespace
}  // namespace yoke::fake_nvml

using namespace yoke::fake_nvml;  // NOLINT: only definitions of the C interface follow

extern "C" {

int nvmlDeviceGetFieldValues(Handle device, int count, FieldValue* values) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (values == nullptr || count < 1) return kInvalidArgument;
    using namespace std::chrono;
    const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    for (int i = 0; i < count; ++i) {
      FieldValue& out = values[i];
      ValueType type = kUnsigned;
      const Answer answer = of_field(target, out.id, out.scope, type);
      out = {out.id, out.scope, now, 0, type, answer.status, {}};
      if (answer.status != kSuccess) continue;
      if (type == kUnsigned) {
        out.value.ui = static_cast<Size>(answer.number);
      } else {
        out.value.ull = static_cast<Wide>(answer.number);
      }
    }
    return kSuccess;
  });
}

// Monitors fail if some of these functions are missing. The fake only checks the handle and writes no results.
#define NOT_SUPPORTED(name)                                                          \
  int name(Handle device) {                                                          \
    return on_device(__func__, device, [](const Target&) { return kNotSupported; }); \
  }
NOT_SUPPORTED(nvmlDeviceGetAPIRestriction)
NOT_SUPPORTED(nvmlDeviceGetAccountingMode)
NOT_SUPPORTED(nvmlDeviceGetApplicationsClock)
NOT_SUPPORTED(nvmlDeviceGetAutoBoostedClocksEnabled)
NOT_SUPPORTED(nvmlDeviceGetBridgeChipInfo)
NOT_SUPPORTED(nvmlDeviceGetClock)
NOT_SUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
NOT_SUPPORTED(nvmlDeviceGetDriverModel)
NOT_SUPPORTED(nvmlDeviceGetDriverModel_v2)
NOT_SUPPORTED(nvmlDeviceGetEncoderSessions)
NOT_SUPPORTED(nvmlDeviceGetEncoderStats)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV)
NOT_SUPPORTED(nvmlDeviceGetGpuOperationMode)
NOT_SUPPORTED(nvmlDeviceGetGspFirmwareVersion)
NOT_SUPPORTED(nvmlDeviceGetInforomImageVersion)
NOT_SUPPORTED(nvmlDeviceGetMarginTemperature)
NOT_SUPPORTED(nvmlDeviceGetMinMaxFanSpeed)
NOT_SUPPORTED(nvmlDeviceGetMultiGpuBoard)
NOT_SUPPORTED(nvmlDeviceGetPcieLinkMaxSpeed)
NOT_SUPPORTED(nvmlDeviceGetPcieSpeed)
NOT_SUPPORTED(nvmlDeviceGetPowerSource)
NOT_SUPPORTED(nvmlDeviceGetRowRemapperHistogram)
NOT_SUPPORTED(nvmlDeviceGetRunningProcessDetailList)
NOT_SUPPORTED(nvmlDeviceGetSamples)
NOT_SUPPORTED(nvmlDeviceGetSupportedGraphicsClocks)
NOT_SUPPORTED(nvmlDeviceGetSupportedMemoryClocks)
NOT_SUPPORTED(nvmlDeviceGetThermalSettings)
NOT_SUPPORTED(nvmlDeviceGetViolationStatus)
NOT_SUPPORTED(nvmlDeviceGetVirtualizationMode)
#undef NOT_SUPPORTED

}  // extern "C"
