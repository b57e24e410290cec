#include "yoke/launch/process/step_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"

namespace yoke::launch {
namespace {

constexpr std::chrono::seconds kNew{1};

}  // namespace

std::vector<Ancestor> ancestors() {
  std::vector<Ancestor> result;
  for (pid_t pid = getppid(); pid > 1;) {
    const auto stat = device::parse_process_stat(yoke::text_of("/proc/" + std::to_string(pid) + "/stat"));
    if (!stat) break;
    result.push_back({pid, stat->comm});
    pid = static_cast<pid_t>(stat->parent_pid);
  }
  return result;
}

pid_t step_daemon_of(const std::vector<Ancestor>& ancestors) {
  const auto found = std::ranges::find(ancestors, "slurmstepd", &Ancestor::name);
  return found == ancestors.end() ? 0 : found->pid;
}

bool have_ranks(pid_t daemon, std::optional<pid_t> guardians, std::chrono::milliseconds since_start) {
  return daemon != 0 && guardians == daemon && since_start >= kNew;
}

std::optional<pid_t> take_pending(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  siginfo_t info{};
  const timespec no_time{};
  if (sigtimedwait(&set, &info, &no_time) != signal) return std::nullopt;
  return info.si_pid;
}

}  // namespace yoke::launch
