#include "yoke/device/process/detail/json.h"

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "yoke/device/detail/json_members.h"

namespace yoke::device {
namespace {

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
  const auto write = [&](const auto& member) { json[member.first] = json_value((*part).*member.second); };
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

}  // namespace

void write_json(const ProcessInfo& info, Json& json) {
  json["user"] = json_text(info.user);
  json["uid"] = json_value(info.uid);
  json["command"] = json_text(info.command);
  json["name"] = json_text(info.name);
  json["parent_pid"] = json_value(info.parent_pid);
  json["state"] = info.state ? json_text(std::string(1, *info.state)) : Json(nullptr);
  json["started_at_seconds"] = info.started_at ? Json(seconds(info.started_at->time_since_epoch())) : Json(nullptr);
  json["start_ticks"] = json_value(info.start_ticks);
  json["cpu_time_seconds"] = info.cpu_time ? Json(seconds(*info.cpu_time)) : Json(nullptr);
  json["resident_bytes"] = json_value(info.resident_bytes);
  json["is_visible"] = json_value(info.is_visible);
  json["reason"] = json_text(info.reason);
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
  json["label"] = json_text(label(origin));
  json["container"] = part_json(origin.container);
  json["slurm"] = part_json(origin.slurm);
  json["jupyter"] = part_json(origin.jupyter);
  json["tmux"] = part_json(origin.tmux);
  json["screen"] = nullptr;
  if (origin.screen) json["screen"] = {{"session", json_text(*origin.screen)}};
  json["torch_rank"] = part_json(origin.torch_rank);
  json["systemd_unit"] = json_text(origin.systemd_unit);
  json["login_session"] = json_text(origin.login_session);
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

}  // namespace yoke::device
