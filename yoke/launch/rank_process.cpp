#include "yoke/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace yoke::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What the launcher changed for itself, as it was. Signals that were ignored when it started (nohup) stay so.
void restore_signals() {
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

using Mask = std::vector<unsigned long>;  // as the kernel has sets of CPUs and nodes

Mask to_mask(const CpuSet& set) {
  constexpr size_t kBits = 8 * sizeof(Mask::value_type);
  Mask mask;
  for (const auto number : set.to_vector()) {
    const auto word = static_cast<size_t>(number) / kBits;
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= 1UL << (static_cast<size_t>(number) % kBits);
  }
  return mask;
}

/// linux/mempolicy.h has the numbers; MPOL_PREFERRED_MANY is of Linux 5.15, before which only one node can be
/// preferred.
void prefer_memory(const Mask& nodes) {
  constexpr int kPreferred = 1, kPreferredMany = 5;
  const auto num_bits = nodes.size() * 8 * sizeof nodes[0] + 1;  // the kernel takes one off
  if (syscall(SYS_set_mempolicy, kPreferredMany, nodes.data(), num_bits) != 0) {
    syscall(SYS_set_mempolicy, kPreferred, nodes.data(), num_bits);
  }
}

/// Only calls that are safe between fork and exec.
[[noreturn]] void become_rank(const RankPlan& plan, const StartOptions& options, char** argv, char** environment,
                              const Mask& cpus, const Mask& nodes, pid_t guardian) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(1);  // it died before the death signal was in place
  dup2(options.in_fd, STDIN_FILENO);
  dup2(options.out_fd, STDOUT_FILENO);
  dup2(options.err_fd, STDERR_FILENO);
  for (const int fd : plan.inherited_fds) fcntl(fd, F_SETFD, 0);
  if (options.master_fd >= 0) fcntl(options.master_fd, F_SETFD, 0);
  // Preferences: what a container's rules refuse, the rank does without.
  if (!cpus.empty()) syscall(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data());
  if (!nodes.empty()) prefer_memory(nodes);
  setrlimit(RLIMIT_NOFILE, &options.file_limit);
  restore_signals();
  execvpe(argv[0], argv, environment);
  const ExecFailure failure{options.index, errno};
  const bool told = write(options.failures, &failure, sizeof failure) == sizeof failure;
  _exit(told && failure.error_number == ENOENT ? 127 : 126);
}

}  // namespace

pid_t start_rank(const RankPlan& plan, const StartOptions& options) {
  auto argv = pointers(plan.argv);
  auto environment = pointers(plan.environment);
  const auto master = fmt::format("YOKE_MASTER_LISTEN_FD={}", options.master_fd);
  if (options.master_fd >= 0) environment.insert(environment.begin(), const_cast<char*>(master.c_str()));
  const auto cpus = to_mask(plan.cpus), nodes = to_mask(plan.memory_nodes);
  const pid_t guardian = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_rank(plan, options, argv.data(), environment.data(), cpus, nodes, guardian);
  return pid;
}

}  // namespace yoke::launch
