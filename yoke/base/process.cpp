#include "yoke/base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

/// Aligned space for the control message that carries descriptors.
struct FdSpace {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMaxMessageFds * sizeof(int))] = {};
};

bool place_stream(int fd, int number) {
  if (fd == kInheritedStream) return true;
  if (fd == kNullStream) fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  return dup2(fd, number) >= 0;
}

/// fork() with CLONE_PARENT, for which glibc has no function. A child that calls exec does not need what glibc's fork()
/// does besides, such as running the atfork handlers.
pid_t fork_child(bool as_sibling) {
  if (!as_sibling) return fork();
  return static_cast<pid_t>(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

/// Gives signals that this process handles their default effect. Exec does the same, but a signal that arrives before
/// it must not run a handler of the parent in the child.
void reset_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL)
      continue;
    std::signal(signal, SIG_DFL);
  }
}

/// Closes the descriptors from `first` to `last`. Does only what signal-safety(7) allows.
void close_between(int first, int last) {
  if (syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0U) == 0) return;
  // Before Linux 5.9, the process must look for its descriptors.
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) char buffer[4096];
  for (long size = 0; (size = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int fd = 0;
      for (const char* digit = entry->d_name; *digit >= '0' && *digit <= '9'; ++digit) fd = fd * 10 + (*digit - '0');
      if (entry->d_name[0] != '.' && fd != folder && fd >= first && fd <= last) close(fd);
    }
  }
  if (folder >= 0) close(folder);
}

/// Runs between fork and exec, where only async-signal-safe calls are allowed. All signals are blocked at first; `mask`
/// is the parent's mask.
[[noreturn]] void become(const SpawnOptions& options, char** argv, char** environment, pid_t parent,
                         const sigset_t& mask) {
  reset_handlers();
  if (options.blocked_signals != BlockedSignals::kAll) sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (options.new_session) setsid();
  if (options.process_group) setpgid(0, *options.process_group);  // fails if the group has ended meanwhile
  if (options.death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (getppid() != parent) _exit(1);  // the parent ended before the death signal was in place
  }
  if (place_stream(options.in, STDIN_FILENO) && place_stream(options.out, STDOUT_FILENO) &&
      place_stream(options.err, STDERR_FILENO)) {
    for (const int fd : options.inherited_fds) fcntl(fd, F_SETFD, 0);
    if (options.before_exec) options.before_exec();
    if (options.blocked_signals == BlockedSignals::kNone) {
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
    }
    execvpe(argv[0], argv, environment);
  }
  const int error_number = errno;
  if (options.exec_failed) options.exec_failed(error_number);
  _exit(error_number == ENOENT ? 127 : 126);
}

}  // namespace

bool is_program(const std::filesystem::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
}

std::optional<std::filesystem::path> find_program(std::string_view name, const Environment& environment) {
  if (name.find('/') != name.npos) return name;
  if (name.empty()) return std::nullopt;
  auto path = environment.value_or("PATH", "/bin:/usr/bin");
  if (path.empty()) path = ".";
  for (const auto folder : split(path, ':')) {
    auto candidate = std::filesystem::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return candidate;
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> find_tool(std::string_view name, const Environment& environment) {
  std::string absolute;
  const auto path = environment.value_or("PATH", "/bin:/usr/bin");
  for (const auto folder : split(path, ':')) {
    if (folder.starts_with('/')) absolute += (absolute.empty() ? "" : ":") + std::string(folder);
  }
  if (absolute.empty()) return std::nullopt;
  return find_program(name, {{"PATH", absolute}});
}

int shell_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

UniqueFd open_process(int64_t pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
}

int wait_for_child(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return shell_status(status);
}

std::vector<char*> exec_pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

pid_t spawn(const SpawnOptions& options) {
  auto argv = exec_pointers(options.argv);
  auto variables = options.environment ? exec_pointers(*options.environment) : std::vector<char*>();
  char** const environment = options.environment ? variables.data() : environ;
  const pid_t parent = options.as_sibling ? getppid() : getpid();
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t pid = fork_child(options.as_sibling);
  if (pid == 0) become(options, argv.data(), environment, parent, mask);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  // The child calls setpgid() too, but the caller may signal the new group before the child has run.
  if (pid > 0 && options.process_group == 0) setpgid(pid, pid);
  return pid;
}

bool send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > kMaxMessageFds) {
    errno = EINVAL;
    return false;
  }
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{.msg_iov = &data, .msg_iovlen = 1};
  FdSpace space;
  if (!fds.empty()) {
    message.msg_control = space.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno != ETOOMANYREFS || Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

ssize_t receive_with_fds(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& fds, int flags) {
  iovec data{bytes.data(), bytes.size()};
  FdSpace space;
  msghdr message{.msg_iov = &data, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
  ssize_t count = 0;
  // Linux reports ECONNRESET, once and before what the other process has sent, if it has ended with unread messages.
  while ((count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags)) < 0 && (errno == EINTR || errno == ECONNRESET)) {
  }
  if (count < 0) return count;
  for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= header->cmsg_len; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return count;
}

UniqueFd to_descriptor(std::string_view text) {
  UniqueFd fd(memfd_create("yoke", MFD_CLOEXEC));
  if (!fd) throw system_error(errno, "making a file in memory");
  write_all(fd.value(), text, "a file in memory");
  return fd;
}

std::string text_of(const UniqueFd& descriptor) {
  std::string text;
  char buffer[1 << 16];
  ssize_t count = 0;
  while ((count = pread(descriptor.value(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

SocketPair make_socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw system_error(errno, "making a pair of sockets");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void close_from(int first) { close_between(first, std::numeric_limits<int>::max()); }

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void close_all_except(std::vector<int> keep) {
  std::ranges::sort(keep);
  int first = 3;
  for (const int fd : keep) {
    if (fd < first) continue;
    if (fd > first) close_between(first, fd - 1);
    first = fd + 1;
  }
  close_from(first);
}

}  // namespace yoke
