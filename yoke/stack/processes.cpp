#include "yoke/stack/processes.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/folder.h"
#include "yoke/device/process/info.h"

namespace yoke::stack {
namespace {

using device::ProcessFolder;

struct Syscall {
  int64_t number;
  std::string_view name;
};
/// System calls in which a process may wait for a long time.
constexpr Syscall kSyscalls[] = {
    {SYS_futex, "futex"},
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_ioctl, "ioctl"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_fsync, "fsync"},
    {SYS_openat, "openat"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_munmap, "munmap"},
    {SYS_exit_group, "exit_group"},
    {SYS_restart_syscall, "restart_syscall"},
#ifdef SYS_poll  // only older architectures have these calls
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
};

std::string syscall_name(std::string_view text) {
  const auto word = text.substr(0, text.find_first_of(" \n"));
  const auto number = parse_int(word);
  if (!number || *number < 0) return "";  // the file contains "running", or may not be read
  for (const auto& known : kSyscalls) {
    if (known.number == *number) return std::string(known.name);
  }
  return std::string(word);
}

std::string first_line(const std::optional<std::string>& text) {
  return text ? text->substr(0, text->find('\n')) : std::string();
}

std::optional<device::ProcessStat> stat_of(int64_t pid) {
  return device::parse_process_stat(ProcessFolder(pid, "/proc").read("stat", 4096).value_or(""));
}

/// Whether the process is a shell or similar wrapper, which only waits for its child.
bool only_waits_for_a_child(const std::vector<ThreadStack>& threads) {
  static const std::set<std::string> kWaits = {"wait4", "waitid", "rt_sigsuspend"};
  static const std::set<std::string> kPlaces = {"do_wait", "kernel_wait4", "sigsuspend", "do_sigsuspend"};
  return threads.size() == 1 && (kWaits.contains(threads[0].syscall) || kPlaces.contains(threads[0].kernel));
}

using Children = std::multimap<int64_t, int64_t>;

Children all_children() {
  Children children;
  for (const auto& [pid, folder] : numbered("/proc")) {
    if (const auto stat = stat_of(pid); stat && stat->state != 'Z') children.emplace(stat->parent_pid, pid);
  }
  return children;
}

ProcessStack look_at_process(int64_t pid) {
  const auto info = device::describe_process(pid);
  return {.pid = pid, .command = info.command.empty() ? info.name : info.command, .threads = look_at_threads(pid)};
}

void look_at_rank(int64_t pid, const Children& children, std::vector<ProcessStack>& processes) {
  processes.push_back(look_at_process(pid));
  auto& process = processes.back();
  const auto [first, last] = children.equal_range(pid);
  if (first == last || !only_waits_for_a_child(process.threads)) return;
  process.threads.clear();
  process.notes.push_back("waits for its child");
  for (auto child = first; child != last; ++child) look_at_rank(child->second, children, processes);
}

std::string fate_of(const launch::JobRank& rank) {
  return rank.wait_status ? describe_wait_status(*rank.wait_status) : "is being started";
}

/// Whether process `pid` is a descendant of the launcher. Other processes are not ranks of the job. (If the launcher
/// belongs to a different user, or runs on a different host with the same name, its PIDs are not valid here.)
bool is_below(int64_t launcher, int64_t pid) {
  constexpr int kMaxDepth = 64;
  for (int i = 0; i < kMaxDepth && pid > 1; ++i) {
    if (pid == launcher) return true;
    const auto stat = stat_of(pid);
    pid = stat ? stat->parent_pid : 0;
  }
  return false;
}

}  // namespace

std::vector<ThreadStack> look_at_threads(int64_t pid) {
  std::vector<ThreadStack> threads;
  const ProcessFolder folder(pid, "/proc");
  for (const auto& [tid, path] : numbered(fmt::format("/proc/{}/task", pid))) {
    const auto read = [&, tid = tid](const char* file) {
      return folder.read(fmt::format("task/{}/{}", tid, file).c_str(), 4096);
    };
    const auto stat = device::parse_process_stat(read("stat").value_or(""));
    if (!stat) continue;
    ThreadStack thread{.tid = tid, .name = stat->comm, .state = stat->state, .kernel = first_line(read("wchan"))};
    if (thread.kernel == "0") thread.kernel.clear();
    thread.syscall = syscall_name(read("syscall").value_or(""));
    threads.push_back(std::move(thread));
  }
  return threads;
}

bool is_in_kernel(const std::vector<ThreadStack>& threads) {
  return std::ranges::any_of(threads, [](const ThreadStack& thread) { return thread.state == 'D'; });
}

std::vector<RankStack> look_at_ranks(const launch::Job& job, std::optional<int64_t> rank) {
  std::vector<RankStack> ranks;
  const auto children = all_children();
  for (const auto& known : job.ranks) {
    if (rank && known.rank != *rank) continue;
    auto& one = ranks.emplace_back(RankStack{.rank = known.rank});
    if (!known.is_up()) {
      one.note = fate_of(known);
    } else if (known.host != job.host) {
      one.note = fmt::format("process {} on {}: look at it there", known.pid, known.host);
    } else if (!is_below(job.pid, known.pid)) {
      one.note = fmt::format("process {} was not started by this launcher", known.pid);
    } else {
      look_at_rank(known.pid, children, one.processes);
    }
  }
  if (ranks.empty()) throw Error(ErrorCode::kNotFound, "job {} has no rank {}", job.pid, *rank);
  return ranks;
}

void add_kernel_stack(ProcessStack& process) {
  if (process.threads.empty() || !process.threads[0].frames.empty()) return;
  const auto text = ProcessFolder(process.pid, "/proc").read("stack", 1 << 16).value_or("");
  for (const auto line : lines_of(text)) {
    process.kernel_frames.emplace_back(
        line.substr(std::min(line.size(), line.find("] ") + 2)));  // "[<0>] do_wait+0x2a/0x50"
  }
}

}  // namespace yoke::stack
