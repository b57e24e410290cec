#include "call.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

namespace yoke::fake_nvml {
namespace {

constexpr uintptr_t kHandleBase = 0x4e564d4c0000;  // not a valid address, so that no pointer equals a handle
std::atomic<int> num_users = 0;

/// Returns "nvmlDeviceGetMemoryInfo" for "nvmlDeviceGetMemoryInfo_v2".
std::string without_version(const char* function) {
  std::string name = function;
  const auto end = name.rfind("_v");
  if (end != std::string::npos && end + 3 == name.size()) name.resize(end);
  return name;
}

const Json& entry_for(const Json& table, const char* function) {
  const Json& exact = member(table, function);
  if (!exact.is_null()) return exact;
  const Json& versionless = member(table, without_version(function).c_str());
  return versionless.is_null() ? member(table, "*") : versionless;
}

}  // namespace

Handle handle_of(Place place) {
  const auto number = kHandleBase + (place.device << 8) + static_cast<size_t>(place.instance + 1);
  return reinterpret_cast<Handle>(number);  // NOLINT(performance-no-int-to-ptr): never dereferenced
}

Answer Target::number(const Json& object, const char* group, const char* name) const {
  const Json& whole = member(object, group);
  return resolve(state, whole.is_string() ? whole : member(whole, name));
}

int store_text(const Json& text, char* out, Size length) {
  if (out == nullptr) return kInvalidArgument;
  if (!text.is_string()) return kNotSupported;
  const auto& characters = text.get_ref<const std::string&>();
  if (characters.size() >= length) return kInsufficientSize;
  std::memcpy(out, characters.c_str(), characters.size() + 1);
  return kSuccess;
}

std::string full_bus_id(const std::string& text) {
  const PciInfo info = pci_info(text);
  return info.bus_id;
}

PciInfo pci_info(const std::string& bus_id) {
  PciInfo info{};
  if (std::sscanf(bus_id.c_str(), "%x:%x:%x", &info.domain, &info.bus, &info.device) != 3) return {};
  std::snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "%04X:%02X:%02X.0", info.domain & 0xffff,
                info.bus & 0xff, info.device & 0xff);
  std::snprintf(info.bus_id, sizeof info.bus_id, "%08X:%02X:%02X.0", info.domain, info.bus, info.device);
  return info;
}

void add_user(int count) { num_users += count; }
bool is_initialised() { return num_users > 0; }

int trouble(const Json& object, const char* function) {
  if (const Json& table = member(object, "hang_s"); !table.empty()) {
    constexpr std::string_view kHandleCall = "nvmlDeviceGetHandleBy";
    const bool is_handle_call = std::string_view(function).substr(0, kHandleCall.size()) == kHandleCall;
    const Json& seconds = table.is_number() && is_handle_call ? table : entry_for(table, function);
    if (seconds.is_number()) std::this_thread::sleep_for(std::chrono::duration<double>(seconds.get<double>()));
  }
  if (const Json& table = member(object, "errors"); !table.empty()) {
    const Json& error = entry_for(table, function);
    if (!error.is_null()) return status_of(error);
  }
  return kSuccess;
}

int find(const State& state, Handle handle, Place& place) {
  const auto offset = reinterpret_cast<uintptr_t>(handle) - kHandleBase;
  if (offset >> 8 >= state.devices.size()) return kInvalidArgument;
  place = {offset >> 8, static_cast<int>(offset & 0xff) - 1};
  if (place.instance < 0) return kSuccess;
  const Json& instances = member(state.devices[place.device], "mig", "instances");
  const auto index = static_cast<size_t>(place.instance);
  return index < instances.size() && instances[index].is_object() ? kSuccess : kInvalidArgument;
}

int trouble_at(const State& state, Place place, const char* function) {
  const Json& device = state.devices[place.device];
  const auto whole = [&](const Json& object) {
    if (const int status = trouble(object, function); status != kSuccess) return status;
    const Json& error = member(object, "error");
    return error.is_null() ? static_cast<int>(kSuccess) : status_of(error);
  };
  if (const int status = whole(device); status != kSuccess || place.instance < 0) return status;
  return whole(member(device, "mig", "instances")[static_cast<size_t>(place.instance)]);
}

}  // namespace yoke::fake_nvml
