#include <nlohmann/json.hpp>

#include "yoke/device/process/info.h"
#include "yoke/device/process/origin.h"

namespace yoke::device {
namespace {

using Json = nlohmann::ordered_json;

/// JSON is UTF-8: bytes that are not are replaced. Nothing known is null.
Json text(const std::string& value) {
  if (value.empty()) return nullptr;
  return Json::parse(Json(value).dump(-1, ' ', false, Json::error_handler_t::replace));
}

template <typename T>
Json value(const std::optional<T>& known) {
  return known ? Json(*known) : Json(nullptr);
}

template <typename Duration>
double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// The member at `key`, or nullptr when it is missing or null.
const Json* find(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

template <typename T>
void get(const Json& json, const char* key, T& target) {
  if (const auto* found = find(json, key)) target = found->get<T>();
}
template <typename T>
void get(const Json& json, const char* key, std::optional<T>& target) {
  if (const auto* found = find(json, key)) target = found->get<T>();
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kLargest = 1e12;  // a recording may hold anything
  if (!(seconds >= -kLargest && seconds <= kLargest)) return {};
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

void write_json(const ProcessInfo& info, Json& json) {
  json["user"] = text(info.user);
  json["uid"] = value(info.uid);
  json["command"] = text(info.command);
  json["name"] = text(info.name);
  json["parent_pid"] = value(info.parent_pid);
  json["state"] = info.state ? text(std::string(1, *info.state)) : Json(nullptr);
  json["started_at_seconds"] = info.started_at ? Json(seconds(info.started_at->time_since_epoch())) : Json(nullptr);
  json["start_ticks"] = value(info.start_ticks);
  json["cpu_time_seconds"] = info.cpu_time ? Json(seconds(*info.cpu_time)) : Json(nullptr);
  json["resident_bytes"] = value(info.resident_bytes);
  json["is_visible"] = value(info.is_visible);
  json["reason"] = text(info.reason);
}

void read_json(const Json& json, ProcessInfo& info) {
  get(json, "user", info.user);
  get(json, "uid", info.uid);
  get(json, "command", info.command);
  get(json, "name", info.name);
  get(json, "parent_pid", info.parent_pid);
  std::string state;
  get(json, "state", state);
  if (!state.empty()) info.state = state[0];
  if (const auto* started = find(json, "started_at_seconds")) {
    info.started_at = std::chrono::system_clock::time_point(milliseconds_of(started->get<double>()));
  }
  get(json, "start_ticks", info.start_ticks);
  if (const auto* time = find(json, "cpu_time_seconds")) info.cpu_time = milliseconds_of(time->get<double>());
  get(json, "resident_bytes", info.resident_bytes);
  get(json, "is_visible", info.is_visible);
  get(json, "reason", info.reason);
}

void write_json(const Origin& origin, Json& json) {
  json["label"] = text(label(origin));
  json["container"] = nullptr;
  if (const auto& container = origin.container) {
    json["container"] = {{"runtime", text(container->runtime)},
                         {"id", text(container->id)},
                         {"name", text(container->name)},
                         {"pod_uid", text(container->pod_uid)},
                         {"inner_pid", value(container->inner_pid)}};
  }
  json["slurm"] = nullptr;
  if (const auto& slurm = origin.slurm) {
    json["slurm"] = {{"job_id", slurm->job_id},
                     {"step", text(slurm->step)},
                     {"name", text(slurm->name)},
                     {"array_task", text(slurm->array_task)}};
  }
  json["jupyter"] = nullptr;
  if (const auto& jupyter = origin.jupyter) {
    json["jupyter"] = {{"notebook", text(jupyter->notebook)}, {"kernel_id", text(jupyter->kernel_id)}};
  }
  json["tmux"] = nullptr;
  if (const auto& tmux = origin.tmux) {
    json["tmux"] = {{"session", text(tmux->session)}, {"pane", text(tmux->pane)}, {"socket", text(tmux->socket)}};
  }
  json["screen"] = nullptr;
  if (origin.screen) json["screen"] = {{"session", text(*origin.screen)}};
  json["torch_rank"] = nullptr;
  if (const auto& rank = origin.torch_rank) {
    json["torch_rank"] = {{"rank", rank->rank}, {"world_size", rank->world_size}, {"run_id", text(rank->run_id)}};
  }
  json["systemd_unit"] = text(origin.systemd_unit);
  json["login_session"] = text(origin.login_session);
}

void read_json(const Json& json, Origin& origin) {
  if (const auto* from = find(json, "container")) {
    auto& container = origin.container.emplace();
    get(*from, "runtime", container.runtime);
    get(*from, "id", container.id);
    get(*from, "name", container.name);
    get(*from, "pod_uid", container.pod_uid);
    get(*from, "inner_pid", container.inner_pid);
  }
  if (const auto* from = find(json, "slurm")) {
    auto& slurm = origin.slurm.emplace();
    get(*from, "job_id", slurm.job_id);
    get(*from, "step", slurm.step);
    get(*from, "name", slurm.name);
    get(*from, "array_task", slurm.array_task);
  }
  if (const auto* from = find(json, "jupyter")) {
    auto& jupyter = origin.jupyter.emplace();
    get(*from, "notebook", jupyter.notebook);
    get(*from, "kernel_id", jupyter.kernel_id);
  }
  if (const auto* from = find(json, "tmux")) {
    auto& tmux = origin.tmux.emplace();
    get(*from, "session", tmux.session);
    get(*from, "pane", tmux.pane);
    get(*from, "socket", tmux.socket);
  }
  if (const auto* from = find(json, "screen")) get(*from, "session", origin.screen.emplace());
  if (const auto* from = find(json, "torch_rank")) {
    auto& rank = origin.torch_rank.emplace();
    get(*from, "rank", rank.rank);
    get(*from, "world_size", rank.world_size);
    get(*from, "run_id", rank.run_id);
  }
  get(json, "systemd_unit", origin.systemd_unit);
  get(json, "login_session", origin.login_session);
}

}  // namespace yoke::device
