#include "yoke/launch/process/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

constexpr int kMaxSignalPasses = 8;

std::optional<Process> read_process(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t count = fd ? read(fd.value(), text, sizeof text - 1) : -1;
  if (count <= 0) return std::nullopt;
  text[count] = '\0';
  const char* after_name = std::strrchr(text, ')');  // the name may contain parentheses
  Process process{.pid = pid};
  char state = 0;
  // proc(5): state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
  // priority nice num_threads itrealvalue starttime
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lu",
                  &state, &process.parent, &process.group, &process.session, &process.start_ticks) != 5) {
    return std::nullopt;
  }
  process.is_zombie = state == 'Z' || state == 'X';
  return process;
}

std::vector<Process> all_processes() {
  std::vector<Process> result;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return result;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (const auto process = read_process(std::atoi(entry->d_name))) result.push_back(*process);
  }
  closedir(folder);
  return result;
}

std::vector<Process> descendants_except(const std::vector<pid_t>& keep, pid_t ancestor = getpid()) {
  std::unordered_multimap<pid_t, Process> by_parent;
  for (const auto& process : all_processes()) by_parent.emplace(process.parent, process);
  std::vector<Process> result;
  std::unordered_set<pid_t> seen;  // a pid that is reused during the pass could close a cycle
  std::vector<pid_t> todo = {ancestor};
  while (!todo.empty()) {
    const auto [first, last] = by_parent.equal_range(todo.back());
    todo.pop_back();
    for (auto child = first; child != last; ++child) {
      const auto pid = child->second.pid;
      if (std::ranges::find(keep, pid) != keep.end() || !seen.insert(pid).second) continue;
      result.push_back(child->second);
      todo.push_back(pid);
    }
  }
  return result;
}

/// Returns false if this process has no more children.
bool reap_all() {
  while (true) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0 && errno != EINTR) return false;
  }
}

void wait_for_child(std::chrono::milliseconds limit) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const timespec time{0, limit.count() * 1'000'000};
  sigtimedwait(&set, nullptr, &time);
}

}  // namespace

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void signal_process(const Process& process, int signal) {
  const auto handle = open_process(process.pid);
  // The pid may have been reused before the pidfd was opened, so check which process the pidfd refers to.
  const auto now = read_process(process.pid);
  if (!now || now->start_ticks != process.start_ticks) return;
  if (handle) {
    syscall(SYS_pidfd_send_signal, handle.value(), signal, nullptr, 0);
  } else if (errno != ESRCH) {  // out of descriptors, or a kernel older than 5.3
    kill(process.pid, signal);
  }
}

std::string process_name(pid_t pid) {
  char path[32], text[64];
  std::snprintf(path, sizeof path, "/proc/%d/comm", pid);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t count = fd ? read(fd.value(), text, sizeof text) : -1;
  if (count <= 1) return "a process";
  return printable({text, static_cast<size_t>(count) - 1});  // without the line feed
}

bool is_cleaner(pid_t pid) {
  if (process_name(pid) == "torch_shm_manag") return true;  // the kernel keeps 15 bytes of a name
  char path[32], text[4096];
  std::snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t count = fd ? read(fd.value(), text, sizeof text) : -1;
  // Python starts it as: python -c "from multiprocessing.resource_tracker import main;main(7)". A zero ends each word.
  using namespace std::literals;
  constexpr auto kTracker = "\0from multiprocessing.resource_tracker import main;main("sv;
  return count > 0 && std::string_view(text, static_cast<size_t>(count)).find(kTracker) != std::string_view::npos;
}

std::vector<Process> descendants() { return descendants_except({}); }

std::vector<Process> descendants_of(pid_t ancestor) { return descendants_except({}, ancestor); }

void signal_descendants(pid_t group, int signal) {
  std::set<std::pair<pid_t, uint64_t>> told;
  // Repeated for processes that were forked meanwhile. If a program forks faster than this, some of its processes get
  // no signal.
  for (int pass = 0; pass < kMaxSignalPasses; ++pass) {
    bool is_complete = true;
    for (const auto& process : descendants()) {
      if (process.group != group || process.is_zombie) continue;
      if (!told.insert({process.pid, process.start_ticks}).second) continue;
      signal_process(process, signal);
      is_complete = false;
    }
    if (is_complete) return;
  }
}

bool has_children() {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

std::vector<Process> end_descendants(const std::vector<pid_t>& keep, std::chrono::milliseconds patience) {
  const auto start = std::chrono::steady_clock::now();
  // Orphans become children of this process, so every descendant has a chain of parents up to it. Without a child it
  // has no descendant.
  while (reap_all()) {
    auto left = descendants_except(keep);
    if (left.empty()) return {};
    const auto passed = std::chrono::steady_clock::now() - start;
    for (const auto& process : left) {
      if (process.is_zombie || (passed < kCleaningTime && is_cleaner(process.pid))) continue;
      signal_process(process, SIGKILL);
    }
    if (!reap_all()) return {};
    if (passed >= patience) {
      std::erase_if(left, [](const Process& process) { return process.is_zombie; });
      return left;
    }
    wait_for_child(std::chrono::milliseconds(5));
  }
  return {};
}

}  // namespace yoke::launch
