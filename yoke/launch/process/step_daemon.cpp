#include "yoke/launch/process/step_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>

namespace yoke::launch {
namespace {

constexpr std::chrono::seconds kNew{1};

}  // namespace

std::vector<Ancestor> ancestors() {
  std::vector<Ancestor> result;
  for (pid_t pid = getppid(); pid > 1;) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    // proc(5): pid (comm) state ppid ...; the name may contain parentheses
    const auto begin = text.find('('), end = text.rfind(')');
    int parent = 0;
    if (begin == text.npos || end == text.npos || std::sscanf(text.c_str() + end + 1, " %*c %d", &parent) != 1) break;
    result.push_back({pid, text.substr(begin + 1, end - begin - 1)});
    pid = parent;
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
