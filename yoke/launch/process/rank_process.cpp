#include "yoke/launch/process/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "yoke/base/affinity.h"

namespace yoke::launch {
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

namespace {

/// What the launcher blocked for itself. Its handlers go with exec, and signals that were ignored when it started
/// (nohup) stay so.
void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Only calls that are safe between fork and exec.
[[noreturn]] void become_rank(const RankPlan& plan, const StartOptions& options, char** argv, char** environment,
                              const KernelMask& cpus, const KernelMask& nodes, pid_t guardian) {
  if (plan.process_group == 0) {
    setsid();
  } else {
    setpgid(0, plan.process_group);  // fails when the launcher has gone, and then the guardian ends us
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(1);  // it died before the death signal was in place
  dup2(options.in_fd, STDIN_FILENO);
  dup2(options.out_fd, STDOUT_FILENO);
  dup2(options.err_fd, STDERR_FILENO);
  for (const int fd : plan.inherited_fds) fcntl(fd, F_SETFD, 0);
  if (options.master_fd >= 0) fcntl(options.master_fd, F_SETFD, 0);
  prefer_cpus(cpus);
  prefer_memory(nodes);
  setrlimit(RLIMIT_NOFILE, &options.file_limit);
  unblock_signals();
  execvpe(argv[0], argv, environment);
  const ExecFailure failure{options.index, errno};
  const bool told = write(options.failures, &failure, sizeof failure) == sizeof failure;
  _exit(told && failure.error_number == ENOENT ? 127 : 126);
}

/// With CLONE_PARENT the new process is a child of the caller's parent. glibc has no name for such a fork; what it does
/// beyond the system call is of no use to a child that calls exec.
pid_t fork_for(Guard guard) {
  if (guard == Guard::kCaller) return fork();
  return static_cast<pid_t>(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace

pid_t start_rank(const RankPlan& plan, const StartOptions& options, Guard guard) {
  auto argv = pointers(plan.argv);
  auto environment = pointers(plan.environment);
  const auto master = fmt::format("YOKE_MASTER_LISTEN_FD={}", options.master_fd);
  if (options.master_fd >= 0) environment.insert(environment.begin(), const_cast<char*>(master.c_str()));
  const auto cpus = to_kernel_mask(plan.cpus), nodes = to_kernel_mask(plan.memory_nodes);
  const pid_t guardian = guard == Guard::kCaller ? getpid() : getppid();
  const pid_t pid = fork_for(guard);
  if (pid == 0) become_rank(plan, options, argv.data(), environment.data(), cpus, nodes, guardian);
  return pid;
}

}  // namespace yoke::launch
