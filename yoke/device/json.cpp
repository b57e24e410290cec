#include "yoke/device/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/device/detail/json_members.h"
#include "yoke/device/detail/numbers.h"
#include "yoke/device/process/detail/json.h"

namespace yoke::device {
namespace {

// The same tables serve to write and to read JSON. They list each member with its key, in the order of the output.
template <typename Struct, typename Value>
using Field = std::pair<const char*, Value Struct::*>;

constexpr Field<Readings, std::optional<bool>> kFlags[] = {
    {"persistence_mode", &Readings::persistence_mode},
    {"ecc_enabled", &Readings::ecc_enabled},
    {"mig_enabled", &Readings::mig_enabled},
    {"display_active", &Readings::display_active},
    {"retirement_pending", &Readings::retirement_pending},
    {"ecc_after_reset", &Readings::ecc_after_reset},
    {"mig_after_reset", &Readings::mig_after_reset},
    {"remapping_failed", &Readings::remapping_failed},
    {"unified_memory", &Readings::unified_memory},
};
constexpr Field<Readings, std::optional<std::string>> kModes[] = {
    {"performance_state", &Readings::performance_state},
    {"compute_mode", &Readings::compute_mode},
};
constexpr Field<Facts, std::string> kNames[] = {
    {"uuid", &Facts::uuid},
    {"name", &Facts::name},
    {"pci_bus_id", &Facts::pci_bus_id},
    {"serial", &Facts::serial},
    {"vbios", &Facts::vbios},
    {"brand", &Facts::brand},
    {"architecture", &Facts::architecture},
    {"compute_capability", &Facts::compute_capability},
    {"target", &Facts::target},
    {"cpu_affinity", &Facts::cpu_affinity},
};

template <typename Enum>
Enum enum_named(const std::string& text, std::initializer_list<Enum> all) {
  for (const auto candidate : all) {
    if (name(candidate) == text) return candidate;
  }
  throw Error(ErrorCode::kDataLoss, "`{}` is not known", text);
}

DeviceProcess process_from_json(const Json& json) {
  DeviceProcess process;
  read_member(json, "pid", process.pid);
  read_member(json, "type", process.type);
  read_member(json, "memory_bytes", process.memory_bytes);
  read_member(json, "utilization_percent", process.utilization_percent);
  read_member(json, "gpu_instance", process.gpu_instance);
  read_member(json, "compute_instance", process.compute_instance);
  read_json(json, process.info);
  if (const auto origin = json.find("origin"); origin != json.end() && origin->is_object()) {
    read_json(*origin, process.origin);
  }
  return process;
}

Device device_from_json(const Json& json) {
  Device device;
  read_member(json, "index", device.index);
  device.vendor = enum_named(json.at("vendor").get<std::string>(), {Vendor::kNvidia, Vendor::kAmd, Vendor::kCpu});
  device.state = enum_named(json.at("state").get<std::string>(),
                            {State::kFree, State::kBusy, State::kLost, State::kNoAnswer, State::kNoPermission,
                             State::kUnknown, State::kUnusable, State::kError});
  read_member(json, "reason", device.reason);
  for (const auto& [key, member] : kNames) read_member(json, key, device.facts.*member);
  for (const auto& [key, member, plausible] : kFactNumbers) read_member(json, key, device.facts.*member);
  for (const auto& [key, member, plausible] : kNumbers) {
    auto& number = device.readings.*member;
    read_member(json, key, number);
    const bool may_be_negative = std::string_view(key).ends_with("_celsius");
    if (number && *number < 0 && !may_be_negative) throw Error(ErrorCode::kDataLoss, "{} is {}", key, *number);
  }
  for (const auto& [key, member] : kFlags) read_member(json, key, device.readings.*member);
  for (const auto& [key, member] : kModes) read_member(json, key, device.readings.*member);
  read_member(json, "throttle_reasons", device.readings.throttle_reasons);
  if (const auto processes = json.find("processes"); processes != json.end() && processes->is_array()) {
    for (const auto& process : *processes) device.processes.push_back(process_from_json(process));
    // Recordings of yoke 0.1 have an empty list also if the processes were unknown.
    const bool has_answered =
        device.state == State::kFree || device.state == State::kBusy || device.state == State::kUnusable;
    device.has_process_list = has_answered || !device.processes.empty();
  }
  read_member(json, "process_list_error", device.process_list_error);
  if (!device.process_list_error.empty()) device.has_process_list = false;
  if (const auto links = json.find("links"); links != json.end() && links->is_array()) {
    auto& all = device.links.emplace();
    for (const auto& one : *links) {
      auto& link = all.emplace_back();
      read_member(one, "number", link.number);
      read_member(one, "kind", link.kind);
      read_member(one, "is_active", link.is_active);
      read_member(one, "remote_pci_bus_id", link.remote_pci_bus_id);
    }
  }
  for (const auto& instance : json.value("instances", Json::array())) {
    device.instances.push_back(device_from_json(instance));
  }
  return device;
}

}  // namespace

Json to_json(const DeviceProcess& process) {
  Json json;
  json["pid"] = process.pid;
  write_json(process.info, json);
  json["type"] = process.type;
  json["memory_bytes"] = json_value(process.memory_bytes);
  json["utilization_percent"] = json_value(process.utilization_percent);
  json["gpu_instance"] = json_value(process.gpu_instance);
  json["compute_instance"] = json_value(process.compute_instance);
  json["origin"] = nullptr;
  if (process.origin != Origin{}) write_json(process.origin, json["origin"] = Json::object());
  return json;
}

Json to_json(const Device& device) {
  Json json;
  json["index"] = device.index;
  json["vendor"] = name(device.vendor);
  json["state"] = name(device.state);
  json["reason"] = json_text(device.reason);
  for (const auto& [key, member] : kNames) json[key] = json_text(device.facts.*member);
  for (const auto& [key, member, plausible] : kNumbers) json[key] = json_value(device.readings.*member);
  for (const auto& [key, member] : kFlags) json[key] = json_value(device.readings.*member);
  for (const auto& [key, member] : kModes) json[key] = json_value(device.readings.*member);
  json["throttle_reasons"] = json_value(device.readings.throttle_reasons);
  for (const auto& [key, member, plausible] : kFactNumbers) json[key] = json_value(device.facts.*member);
  json["links"] = nullptr;
  if (device.links) {
    json["links"] = Json::array();
    for (const auto& link : *device.links) {
      json["links"].push_back({{"number", link.number},
                               {"kind", link.kind},
                               {"is_active", link.is_active},
                               {"remote_pci_bus_id", json_text(link.remote_pci_bus_id)}});
    }
  }
  json["processes"] = nullptr;
  if (knows_processes(device)) json["processes"] = Json::array();
  for (const auto& process : device.processes) json["processes"].push_back(to_json(process));
  json["process_list_error"] = json_text(device.process_list_error);
  json["instances"] = Json::array();
  for (const auto& instance : device.instances) json["instances"].push_back(to_json(instance));
  return json;
}

Json to_json(const Snapshot& snapshot) {
  const auto since_epoch = snapshot.time.time_since_epoch();
  Json json;
  json["time_seconds"] = std::chrono::duration<double>(since_epoch).count();
  json["host"] = json_text(snapshot.host);
  json["backends"] = Json::array();
  for (const auto& report : snapshot.backends) {
    json["backends"].push_back({{"backend", report.backend},
                                {"is_available", report.is_available},
                                {"has_answered", report.has_answered},
                                {"is_broken", report.is_broken},
                                {"reason", json_text(report.reason)},
                                {"driver_version", json_text(report.driver_version)},
                                {"api_version", json_text(report.api_version)}});
  }
  json["devices"] = Json::array();
  for (const auto& device : snapshot.devices) json["devices"].push_back(to_json(device));
  return json;
}

Snapshot snapshot_from_json(std::string_view line) {
  try {
    const auto json = Json::parse(line);
    Snapshot snapshot;
    const auto seconds = json.at("time_seconds").get<double>();
    if (!(seconds >= 0 && seconds < 1e11)) throw Error(ErrorCode::kDataLoss, "time_seconds is not a time");
    snapshot.time += std::chrono::microseconds(std::llround(seconds * 1e6));  // a double has no higher precision
    read_member(json, "host", snapshot.host);
    for (const auto& one : json.value("backends", Json::array())) {
      auto& report = snapshot.backends.emplace_back();
      read_member(one, "backend", report.backend);
      read_member(one, "is_available", report.is_available);
      read_member(one, "has_answered", report.has_answered);
      read_member(one, "is_broken", report.is_broken);
      read_member(one, "reason", report.reason);
      read_member(one, "driver_version", report.driver_version);
      read_member(one, "api_version", report.api_version);
    }
    for (const auto& device : json.at("devices")) snapshot.devices.push_back(device_from_json(device));
    return snapshot;
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::kDataLoss, "not a snapshot of devices: invalid JSON from character {} on", error.byte);
  } catch (const Json::exception& error) {
    const std::string_view text = error.what();  // the library's prefix "[json.exception.type_error.302] " is dropped
    throw Error(ErrorCode::kDataLoss, "not a snapshot of devices: {}",
                text.substr(std::min(text.size(), text.find(']') + 2)));
  }
}

}  // namespace yoke::device
