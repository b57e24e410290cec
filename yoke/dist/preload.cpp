#include "yoke/dist/detail/preload.h"

#include <ATen/Parallel.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

#include "yoke/base/affinity.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/contract/preload.h"
#include "yoke/contract/variables.h"

namespace yoke::dist {
namespace {

/// Returns the socket that YOKE_PRELOAD_FD names, if this process's parent is at its other end. Otherwise the variable
/// was meant for a different process.
std::optional<int> socket_of_guardian() {
  const char* text = std::getenv(variable::kPreloadFd);
  if (text == nullptr) return std::nullopt;
  const auto fd = parse_int(text);
  unsetenv(variable::kPreloadFd);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!fd || *fd < 0 || *fd > INT32_MAX ||
      getsockopt(static_cast<int>(*fd), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid != getppid()) {
    return std::nullopt;
  }
  fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
  return static_cast<int>(*fd);
}

int num_threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return 0;  // 0 means unknown
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count;
}

void say(int socket, const void* bytes, size_t size) {
  while (send(socket, bytes, size, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

/// Waits until the intermediate process has ended and this process is the guardian's child. Only then may this process
/// set its death signal, because Linux sends that signal when the current parent ends.
void become_child_of(pid_t guardian, pid_t between) {
  while (getppid() == between) sched_yield();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(1);  // the guardian ended before the death signal was set
}

/// Moves each descriptor to its number. First moves all descriptors above the highest number, because a descriptor may
/// occupy another one's number.
void place(std::vector<UniqueFd> fds, const std::vector<int>& numbers) {
  const int above = *std::max_element(numbers.begin(), numbers.end()) + 1;
  for (auto& fd : fds) fd = UniqueFd(fcntl(fd.value(), F_DUPFD_CLOEXEC, above));
  for (size_t i = 0; i < fds.size(); ++i) {  // dup2 also clears close-on-exec, as a rank expects
    if (dup2(fds[i].value(), numbers[i]) < 0) throw system_error(errno, fmt::format("descriptor {}", numbers[i]));
  }
}

/// The strings and the array are never freed, like the environment that exec sets up.
void replace_environment(std::vector<std::string> environment) {
  auto* const strings = new std::vector<std::string>(std::move(environment));
  auto* const pointers = new std::vector<char*>();
  pointers->reserve(strings->size() + 1);
  for (auto& variable : *strings) pointers->push_back(variable.data());
  pointers->push_back(nullptr);
  environ = pointers->data();
}

/// OpenMP has already read this variable, when its library was loaded. So the number of threads is set by a call.
void obey_num_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return;
  const std::string_view list = text;  // "4,2" gives one number per nesting level
  const auto number = parse_int(list.substr(0, list.find(',')));
  if (number && *number > 0 && *number <= INT32_MAX) at::set_num_threads(static_cast<int>(*number));
}

/// Makes the changes that start_rank() (yoke/launch/process/rank_process.h) makes between fork and exec, and those that
/// exec makes.
void become_rank(std::vector<UniqueFd> fds) {
  const auto text = text_of(fds.at(0));
  FieldReader fields(text);
  auto rank = decode_rank_process(fields);
  if (fds.size() != kNumPreloadFds + rank.inherited_fds.size()) {
    throw Error(ErrorCode::kInternal, "the process that forks ranks sent {} descriptors; {} were expected", fds.size(),
                kNumPreloadFds + rank.inherited_fds.size());
  }
  std::vector<int> numbers = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  numbers.insert(numbers.end(), rank.inherited_fds.begin(), rank.inherited_fds.end());
  if (rank.process_group == 0) {
    setsid();
  } else {
    setpgid(0, rank.process_group);  // fails if the launcher has ended; then the guardian ends this process
  }
  fds.erase(fds.begin());
  place(std::move(fds), numbers);
  prefer_cpus(to_kernel_mask(rank.cpus));
  prefer_memory(to_kernel_mask(rank.memory_nodes));
  setrlimit(RLIMIT_NOFILE, &rank.file_limit);
  replace_environment(std::move(rank.environment));
  obey_num_threads();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Returns true in a new rank. In the caller, returns false and sets `answer` to the rank's pid or -errno. A rank must
/// be a child of the guardian, which waits for it. So an intermediate process forks the rank and ends at once. Linux
/// then makes the guardian the rank's parent, because it is the nearest subreaper.
///
/// The intermediate process is made by vfork. A fork copies the page tables of the 60 MB that libtorch has written to,
/// which takes 2 ms; only the rank needs that copy. POSIX does not allow fork in a vforked process, but Linux and glibc
/// do. The new rank gets a copy of this stack. This process sleeps until the intermediate process has ended. This
/// process's stack is unchanged then, because the intermediate process never returns from this function.
[[gnu::noinline]] bool fork_rank(pid_t guardian, volatile int32_t& answer) {
  answer = -EAGAIN;
  const pid_t between = vfork();
  if (between == 0) {
    const pid_t self = getpid();
    const pid_t rank = fork();
    if (rank == 0) {
      become_child_of(guardian, self);
      return true;
    }
    answer = rank > 0 ? rank : -errno;
    _exit(0);
  }
  if (between < 0) {
    answer = -errno;
  } else {
    waitpid(between, nullptr, 0);
  }
  return false;
}

void serve(int socket) {
  const pid_t guardian = getppid();
  const PreloadHello hello{.num_threads = num_threads()};
  say(socket, &hello, sizeof hello);
  if (hello.num_threads != 1) _exit(0);
  std::fflush(nullptr);  // otherwise every rank would print the text that is still in a buffer
  volatile int32_t answer = 0;
  std::byte byte{};
  std::vector<UniqueFd> fds;
  while (receive_with_fds(socket, std::span(&byte, 1), fds) > 0) {
    if (fork_rank(guardian, answer)) {
      close(socket);
      return become_rank(std::move(fds));
    }
    fds.clear();
    const int32_t told = answer;
    say(socket, &told, sizeof told);
  }
  _exit(0);
}

}  // namespace

void serve_ranks_if_preloaded() noexcept {
  try {
    if (const auto socket = socket_of_guardian()) serve(*socket);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "yoke: a preloaded rank cannot start: %s\n", error.what());
    _exit(exit_status(ErrorCode::kInternal));
  }
}

}  // namespace yoke::dist
