#include "yoke/cli/kill_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "yoke/base/environment.h"

namespace yoke::cli {
namespace {

using device::ProcessInfo;

/// A process of several devices once, with the memory of all.
std::vector<KillTarget> targets_of(const std::vector<DeviceUse>& uses) {
  std::vector<KillTarget> targets;
  for (const auto& use : uses) {
    const auto known = std::find_if(targets.begin(), targets.end(),
                                    [&](const KillTarget& target) { return target.pid == use.process.pid; });
    if (known == targets.end()) {
      targets.push_back({.pid = use.process.pid, .devices = {use.device_id}, .process = use.process});
      continue;
    }
    known->devices.push_back(use.device_id);
    auto& memory = known->process.memory_bytes;
    if (use.process.memory_bytes) memory = memory.value_or(0) + *use.process.memory_bytes;
  }
  return targets;
}

std::string silent_devices(const device::Snapshot& snapshot) {
  std::vector<std::string> ids;
  for (const auto& device : snapshot.devices) {
    if (device.state == device::State::kNoAnswer) ids.push_back(id_of(device));
  }
  return fmt::format("{}", fmt::join(ids, ", "));
}

std::optional<Refusal> not_on_a_device(const ProcessInfo& info, const device::Snapshot& snapshot) {
  if (!info.is_visible.value_or(false)) return Refusal{ErrorCode::kNotFound, "is not there"};
  auto reason = std::string("is on no device; --any ends it nevertheless");
  if (const auto silent = silent_devices(snapshot); !silent.empty()) {
    reason = fmt::format("is on no device that answers (device {} does not); --any ends it nevertheless", silent);
  }
  return Refusal{ErrorCode::kFailedPrecondition, reason};
}

/// What no option allows.
std::optional<Refusal> never(const KillTarget& target, const KillRequest& request, const KillAsker& asker) {
  const auto& info = target.process.info;
  if (target.pid == asker.pid) return Refusal{ErrorCode::kFailedPrecondition, "is this command"};
  if (target.pid == 1) {
    return Refusal{ErrorCode::kFailedPrecondition,
                   "is the first process of this machine or container; stop that instead"};
  }
  if (!info.is_visible.value_or(false)) {
    const auto reason = info.reason.empty() ? "nothing is known of it" : info.reason;
    return Refusal{ErrorCode::kNotFound, "cannot be reached from here: " + reason};
  }
  if (!info.start_ticks) return Refusal{ErrorCode::kPermissionDenied, "cannot be looked at: " + info.reason};
  const bool is_named = !request.pids.empty();
  if (!is_named && asker.ancestors.contains(target.pid)) {
    return Refusal{ErrorCode::kFailedPrecondition, "is a parent of this command; name its PID to end it nevertheless"};
  }
  return std::nullopt;
}

struct Signal {
  std::string_view name;
  int number;
};
constexpr std::array kEnding = {Signal{"TERM", SIGTERM}, Signal{"KILL", SIGKILL}, Signal{"INT", SIGINT},
                                Signal{"HUP", SIGHUP},   Signal{"QUIT", SIGQUIT}, Signal{"ABRT", SIGABRT}};
constexpr std::array kOther = {Signal{"USR1", SIGUSR1}, Signal{"USR2", SIGUSR2}, Signal{"STOP", SIGSTOP},
                               Signal{"TSTP", SIGTSTP}, Signal{"CONT", SIGCONT}, Signal{"WINCH", SIGWINCH},
                               Signal{"ALRM", SIGALRM}, Signal{"PIPE", SIGPIPE}};

}  // namespace

std::vector<KillTarget> plan_kill(const KillRequest& request, const device::Snapshot& snapshot, const KillAsker& asker,
                                  const std::function<ProcessInfo(int64_t pid)>& describe) {
  if (!request.devices.is_everything()) {
    for (const auto& choice : request.devices.resolve(snapshot)) {
      if (choice.device->vendor != device::Vendor::kCpu || choice.word != "cpu") continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "every process uses the processors; name PIDs, or GPUs instead of `cpu`");
    }
  }
  const auto on_devices = targets_of(uses_of(snapshot, request.devices));
  std::vector<KillTarget> targets;
  if (request.pids.empty()) {
    std::copy_if(on_devices.begin(), on_devices.end(), std::back_inserter(targets),
                 [&](const KillTarget& target) { return !request.uid || target.process.info.uid == request.uid; });
  }
  for (const auto pid : request.pids) {
    const auto is_same = [&](const KillTarget& target) { return target.pid == pid; };
    if (std::any_of(targets.begin(), targets.end(), is_same)) continue;
    const auto found = std::find_if(on_devices.begin(), on_devices.end(), is_same);
    if (found != on_devices.end()) {
      targets.push_back(*found);
      continue;
    }
    auto& target = targets.emplace_back(KillTarget{.pid = pid});
    target.process.pid = pid;
    target.process.info = describe(pid);
    const bool is_there = target.process.info.is_visible.value_or(false);
    if (!is_there || !request.with_any) target.refusal = not_on_a_device(target.process.info, snapshot);
  }
  for (auto& target : targets) {
    if (!target.refusal) target.refusal = never(target, request, asker);
  }
  return targets;
}

int parse_signal(std::string_view text) {
  const auto name = text.starts_with("SIG") ? text.substr(3) : text;
  std::vector<std::string_view> names;
  for (const auto* signals : {kEnding.data(), kOther.data()}) {
    const size_t count = signals == kEnding.data() ? kEnding.size() : kOther.size();
    for (size_t i = 0; i < count; ++i) {
      if (signals[i].name == name) return signals[i].number;
      names.push_back(signals[i].name);
    }
  }
  const auto number = parse_int(text);
  if (number && *number > 0 && *number <= SIGRTMAX) return static_cast<int>(*number);
  throw Error(ErrorCode::kInvalidArgument, "there is no signal `{}`; there are {} and numbers", printable(text),
              fmt::join(names, ", "));
}

bool is_ending(int signal) {
  return std::any_of(kEnding.begin(), kEnding.end(), [&](const Signal& known) { return known.number == signal; });
}

}  // namespace yoke::cli
