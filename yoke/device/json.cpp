#include "yoke/device/json.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/device/detail/numbers.h"

namespace yoke::device {
namespace {

/// Returns the member at `key`, or nullptr if it is missing or null.
const Json* find_member(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// Errors  kDataLoss if T is an integer type that cannot hold the number, such as 1e308.
template <typename T>
T json_as(const Json& found, const char* key) {
  if (std::is_integral_v<T> && found.is_number_float() && !(std::abs(found.get<double>()) < 9e18)) {
    throw Error(ErrorCode::kDataLoss, "{} is {}", key, found.get<double>());
  }
  return found.get<T>();
}

/// Reads the member at `key` into `target`. Leaves `target` unchanged if the member is missing or null.
template <typename T>
void read_member(const Json& json, const char* key, T& target) {
  if (const auto* found = find_member(json, key)) target = json_as<T>(*found, key);
}
template <typename T>
void read_member(const Json& json, const char* key, std::optional<T>& target) {
  if (const auto* found = find_member(json, key)) target = json_as<T>(*found, key);
}

Json value_of(const std::string& text) { return or_null(text); }
Json value_of(int64_t number) { return number; }
Json value_of(std::optional<int64_t> number) { return or_null(number); }

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

template <typename Duration>
double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kLargest = 1e12;  // a recording may hold any number
  if (!(seconds >= -kLargest && seconds <= kLargest)) return {};
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

// The members of each part of an origin with their keys. The same tables serve to write and to read.
template <typename Part>
constexpr auto kMembers = nullptr;
template <>
constexpr auto kMembers<Container> = std::tuple{
    std::pair("runtime", &Container::runtime), std::pair("id", &Container::id), std::pair("name", &Container::name),
    std::pair("pod_uid", &Container::pod_uid), std::pair("inner_pid", &Container::inner_pid)};
template <>
constexpr auto kMembers<SlurmJob> =
    std::tuple{std::pair("job_id", &SlurmJob::job_id), std::pair("step", &SlurmJob::step),
               std::pair("name", &SlurmJob::name), std::pair("array_task", &SlurmJob::array_task)};
template <>
constexpr auto kMembers<Jupyter> =
    std::tuple{std::pair("notebook", &Jupyter::notebook), std::pair("kernel_id", &Jupyter::kernel_id)};
template <>
constexpr auto kMembers<Tmux> = std::tuple{std::pair("session", &Tmux::session), std::pair("pane", &Tmux::pane),
                                           std::pair("socket", &Tmux::socket)};
template <>
constexpr auto kMembers<TorchRank> =
    std::tuple{std::pair("rank", &TorchRank::rank), std::pair("world_size", &TorchRank::world_size),
               std::pair("run_id", &TorchRank::run_id)};

template <typename Part>
Json part_json(const std::optional<Part>& part) {
  Json json;
  const auto write = [&](const auto& member) { json[member.first] = value_of((*part).*member.second); };
  if (part) std::apply([&](const auto&... members) { (write(members), ...); }, kMembers<Part>);
  return json;
}

template <typename Part>
void read_part(const Json& json, const char* key, std::optional<Part>& part) {
  const auto* from = find_member(json, key);
  if (from == nullptr) return;
  part.emplace();
  const auto read = [&](const auto& member) { read_member(*from, member.first, (*part).*member.second); };
  std::apply([&](const auto&... members) { (read(members), ...); }, kMembers<Part>);
}

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

void write_json(const ProcessInfo& info, Json& json) {
  json["user"] = or_null(info.user);
  json["uid"] = or_null(info.uid);
  json["command"] = or_null(info.command);
  json["name"] = or_null(info.name);
  json["parent_pid"] = or_null(info.parent_pid);
  json["state"] = info.state ? or_null(std::string(1, *info.state)) : Json(nullptr);
  json["started_at_seconds"] = info.started_at ? Json(seconds(info.started_at->time_since_epoch())) : Json(nullptr);
  json["start_ticks"] = or_null(info.start_ticks);
  json["cpu_time_seconds"] = info.cpu_time ? Json(seconds(*info.cpu_time)) : Json(nullptr);
  json["resident_bytes"] = or_null(info.resident_bytes);
  json["is_visible"] = or_null(info.is_visible);
  json["reason"] = or_null(info.reason);
}

void read_json(const Json& json, ProcessInfo& info) {
  read_member(json, "user", info.user);
  read_member(json, "uid", info.uid);
  read_member(json, "command", info.command);
  read_member(json, "name", info.name);
  read_member(json, "parent_pid", info.parent_pid);
  std::string state;
  read_member(json, "state", state);
  if (!state.empty()) info.state = state[0];
  if (const auto* started = find_member(json, "started_at_seconds")) {
    info.started_at = std::chrono::system_clock::time_point(milliseconds_of(started->get<double>()));
  }
  read_member(json, "start_ticks", info.start_ticks);
  if (const auto* time = find_member(json, "cpu_time_seconds")) info.cpu_time = milliseconds_of(time->get<double>());
  read_member(json, "resident_bytes", info.resident_bytes);
  read_member(json, "is_visible", info.is_visible);
  read_member(json, "reason", info.reason);
}

void write_json(const Origin& origin, Json& json) {
  json["label"] = or_null(label(origin));
  json["container"] = part_json(origin.container);
  json["slurm"] = part_json(origin.slurm);
  json["jupyter"] = part_json(origin.jupyter);
  json["tmux"] = part_json(origin.tmux);
  json["screen"] = nullptr;
  if (origin.screen) json["screen"] = {{"session", or_null(*origin.screen)}};
  json["torch_rank"] = part_json(origin.torch_rank);
  json["systemd_unit"] = or_null(origin.systemd_unit);
  json["login_session"] = or_null(origin.login_session);
}

void read_json(const Json& json, Origin& origin) {
  read_part(json, "container", origin.container);
  read_part(json, "slurm", origin.slurm);
  read_part(json, "jupyter", origin.jupyter);
  read_part(json, "tmux", origin.tmux);
  if (const auto* from = find_member(json, "screen")) read_member(*from, "session", origin.screen.emplace());
  read_part(json, "torch_rank", origin.torch_rank);
  read_member(json, "systemd_unit", origin.systemd_unit);
  read_member(json, "login_session", origin.login_session);
}

Json to_json(const DeviceProcess& process) {
  Json json;
  json["pid"] = process.pid;
  write_json(process.info, json);
  json["type"] = process.type;
  json["memory_bytes"] = or_null(process.memory_bytes);
  json["utilization_percent"] = or_null(process.utilization_percent);
  json["gpu_instance"] = or_null(process.gpu_instance);
  json["compute_instance"] = or_null(process.compute_instance);
  json["origin"] = nullptr;
  if (process.origin != Origin{}) write_json(process.origin, json["origin"] = Json::object());
  return json;
}

Json to_json(const Device& device) {
  Json json;
  json["index"] = device.index;
  json["vendor"] = name(device.vendor);
  json["state"] = name(device.state);
  json["reason"] = or_null(device.reason);
  for (const auto& [key, member] : kNames) json[key] = or_null(device.facts.*member);
  for (const auto& [key, member, plausible] : kNumbers) json[key] = or_null(device.readings.*member);
  for (const auto& [key, member] : kFlags) json[key] = or_null(device.readings.*member);
  for (const auto& [key, member] : kModes) json[key] = or_null((device.readings.*member).value_or(""));
  json["throttle_reasons"] = or_null(device.readings.throttle_reasons);
  for (const auto& [key, member, plausible] : kFactNumbers) json[key] = or_null(device.facts.*member);
  json["links"] = nullptr;
  if (device.links) {
    json["links"] = json_list(*device.links, [](const auto& link) {
      return Json{{"number", link.number},
                  {"kind", link.kind},
                  {"is_active", link.is_active},
                  {"remote_pci_bus_id", or_null(link.remote_pci_bus_id)}};
    });
  }
  json["processes"] = nullptr;
  if (knows_processes(device)) json["processes"] = Json::array();
  for (const auto& process : device.processes) json["processes"].push_back(to_json(process));
  json["process_list_error"] = or_null(device.process_list_error);
  json["instances"] = json_list(device.instances, [](const Device& instance) { return to_json(instance); });
  return json;
}

Json to_json(const Snapshot& snapshot) {
  const auto since_epoch = snapshot.time.time_since_epoch();
  Json json;
  json["time_seconds"] = std::chrono::duration<double>(since_epoch).count();
  json["host"] = or_null(snapshot.host);
  json["backends"] = json_list(snapshot.backends, [](const auto& report) {
    return Json{{"backend", report.backend},
                {"is_available", report.is_available},
                {"has_answered", report.has_answered},
                {"is_broken", report.is_broken},
                {"reason", or_null(report.reason)},
                {"driver_version", or_null(report.driver_version)},
                {"api_version", or_null(report.api_version)}};
  });
  json["devices"] = json_list(snapshot.devices, [](const Device& device) { return to_json(device); });
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
