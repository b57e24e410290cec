#include "yoke/device/process/detail/json.h"

#include <nlohmann/json.hpp>

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

}  // namespace

void write_json(const ProcessInfo& info, OrderedJson& json) {
  json["user"] = json_text(info.user);
  json["uid"] = json_value(info.uid);
  json["command"] = json_text(info.command);
  json["name"] = json_text(info.name);
  json["parent_pid"] = json_value(info.parent_pid);
  json["state"] = info.state ? json_text(std::string(1, *info.state)) : OrderedJson(nullptr);
  json["started_at_seconds"] =
      info.started_at ? OrderedJson(seconds(info.started_at->time_since_epoch())) : OrderedJson(nullptr);
  json["start_ticks"] = json_value(info.start_ticks);
  json["cpu_time_seconds"] = info.cpu_time ? OrderedJson(seconds(*info.cpu_time)) : OrderedJson(nullptr);
  json["resident_bytes"] = json_value(info.resident_bytes);
  json["is_visible"] = json_value(info.is_visible);
  json["reason"] = json_text(info.reason);
}

void read_json(const OrderedJson& json, ProcessInfo& info) {
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

void write_json(const Origin& origin, OrderedJson& json) {
  json["label"] = json_text(label(origin));
  json["container"] = nullptr;
  if (const auto& container = origin.container) {
    json["container"] = {{"runtime", json_text(container->runtime)},
                         {"id", json_text(container->id)},
                         {"name", json_text(container->name)},
                         {"pod_uid", json_text(container->pod_uid)},
                         {"inner_pid", json_value(container->inner_pid)}};
  }
  json["slurm"] = nullptr;
  if (const auto& slurm = origin.slurm) {
    json["slurm"] = {{"job_id", slurm->job_id},
                     {"step", json_text(slurm->step)},
                     {"name", json_text(slurm->name)},
                     {"array_task", json_text(slurm->array_task)}};
  }
  json["jupyter"] = nullptr;
  if (const auto& jupyter = origin.jupyter) {
    json["jupyter"] = {{"notebook", json_text(jupyter->notebook)}, {"kernel_id", json_text(jupyter->kernel_id)}};
  }
  json["tmux"] = nullptr;
  if (const auto& tmux = origin.tmux) {
    json["tmux"] = {
        {"session", json_text(tmux->session)}, {"pane", json_text(tmux->pane)}, {"socket", json_text(tmux->socket)}};
  }
  json["screen"] = nullptr;
  if (origin.screen) json["screen"] = {{"session", json_text(*origin.screen)}};
  json["torch_rank"] = nullptr;
  if (const auto& rank = origin.torch_rank) {
    json["torch_rank"] = {{"rank", rank->rank}, {"world_size", rank->world_size}, {"run_id", json_text(rank->run_id)}};
  }
  json["systemd_unit"] = json_text(origin.systemd_unit);
  json["login_session"] = json_text(origin.login_session);
}

void read_json(const OrderedJson& json, Origin& origin) {
  if (const auto* from = find_member(json, "container")) {
    auto& container = origin.container.emplace();
    read_member(*from, "runtime", container.runtime);
    read_member(*from, "id", container.id);
    read_member(*from, "name", container.name);
    read_member(*from, "pod_uid", container.pod_uid);
    read_member(*from, "inner_pid", container.inner_pid);
  }
  if (const auto* from = find_member(json, "slurm")) {
    auto& slurm = origin.slurm.emplace();
    read_member(*from, "job_id", slurm.job_id);
    read_member(*from, "step", slurm.step);
    read_member(*from, "name", slurm.name);
    read_member(*from, "array_task", slurm.array_task);
  }
  if (const auto* from = find_member(json, "jupyter")) {
    auto& jupyter = origin.jupyter.emplace();
    read_member(*from, "notebook", jupyter.notebook);
    read_member(*from, "kernel_id", jupyter.kernel_id);
  }
  if (const auto* from = find_member(json, "tmux")) {
    auto& tmux = origin.tmux.emplace();
    read_member(*from, "session", tmux.session);
    read_member(*from, "pane", tmux.pane);
    read_member(*from, "socket", tmux.socket);
  }
  if (const auto* from = find_member(json, "screen")) read_member(*from, "session", origin.screen.emplace());
  if (const auto* from = find_member(json, "torch_rank")) {
    auto& rank = origin.torch_rank.emplace();
    read_member(*from, "rank", rank.rank);
    read_member(*from, "world_size", rank.world_size);
    read_member(*from, "run_id", rank.run_id);
  }
  read_member(json, "systemd_unit", origin.systemd_unit);
  read_member(json, "login_session", origin.login_session);
}

}  // namespace yoke::device
