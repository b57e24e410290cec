#include "yoke/launch/process/preload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/preload.h"
#include "yoke/launch/process/elf_libraries.h"
#include "yoke/launch/process/protocol.h"
#include "yoke/launch/process/rank_process.h"

namespace yoke::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLibrary = "libyoke_dist.so";
/// For a fork. A machine that swaps may take long; one that takes longer has no use for a rank.
constexpr std::chrono::seconds kPreloadPatience{30};
constexpr std::chrono::seconds kEndPatience{1};
/// For waitid(); glibc before 2.36 has no name for it.
constexpr auto kPidfd = static_cast<idtype_t>(3);

/// As execvpe looks for it.
std::optional<fs::path> find_program(const std::string& name, const Environment& environment) {
  if (name.find('/') != name.npos) return fs::path(name);
  const auto path = environment.value_or("PATH", "/bin:/usr/bin");
  for (size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    const auto candidate = fs::path(end > begin ? path.substr(begin, end - begin) : ".") / name;
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
    begin = end + 1;
  }
  return std::nullopt;
}

/// Only calls that are safe between fork and exec. Signals stay blocked until a rank is complete: a scheduler that
/// signals every process must not end what ranks are made from.
[[noreturn]] void become_program(char** argv, char** environment, int socket, pid_t guardian) {
  setpgid(0, 0);  // SIGKILL to the launcher's group, where the guardian may still be, is not for the program
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(1);  // it died before the death signal was in place
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // the loader's complaints should be seen, and be in no rank's output
  fcntl(socket, F_SETFD, 0);
  execvpe(argv[0], argv, environment);
  _exit(127);
}

}  // namespace

std::vector<std::string> common_environment(const std::vector<RankPlan>& ranks) {
  auto common = ranks.front().environment;
  for (const auto& rank : ranks) {
    const std::set<std::string_view> its(rank.environment.begin(), rank.environment.end());
    std::erase_if(common, [&](const std::string& variable) { return !its.contains(variable); });
  }
  return common;
}

std::optional<std::string> Preload::why_not(const std::vector<std::string>& argv, const Environment& environment) {
  const auto& name = argv.at(0);
  for (const auto& word : argv) {
    if (word.find("${local_rank}") != word.npos) return "the ranks' arguments differ (${local_rank})";
  }
  // OpenMP reads them when it is loaded, and ties threads to CPUs that are not the rank's.
  for (const char* variable : {"OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    if (environment.contains(variable))
      return fmt::format("{} is set, which is obeyed before ranks are forked", variable);
  }
  if (const auto bound = environment.value_or("OMP_PROC_BIND", "false"); bound != "false" && bound != "FALSE") {
    return "OMP_PROC_BIND is set, which is obeyed before ranks are forked";
  }
  const auto program = find_program(name, environment);
  struct stat status {};
  if (!program || stat(program->c_str(), &status) != 0) return name + " is not found";
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) return name + " is a set-user-ID program";
  try {
    const auto libraries = needed_libraries(*program);
    if (!libraries) return name + " is no dynamically linked program";
    if (std::find(libraries->begin(), libraries->end(), kLibrary) == libraries->end()) {
      return fmt::format("{} is not linked to {}", name, kLibrary);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

Preload::Preload(const std::vector<RankPlan>& ranks) : argv_(ranks.at(0).argv) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw system_error(errno, "making a socket");
  socket_ = UniqueFd(pair[0]);
  const UniqueFd theirs(pair[1]);
  auto environment = common_environment(ranks);
  environment.push_back(fmt::format("{}={}", kPreloadVariable, theirs.value()));
  auto argv_pointers = pointers(argv_), environment_pointers = pointers(environment);
  const pid_t guardian = getpid();
  pid_ = fork();
  if (pid_ < 0) throw system_error(errno, "starting the program to be preloaded");
  if (pid_ == 0) become_program(argv_pointers.data(), environment_pointers.data(), theirs.value(), guardian);
  process_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
}

Preload::~Preload() { fail(""); }

void Preload::fail(std::string reason) {
  reason_ = std::move(reason);
  socket_.reset();  // of which it would end by itself, too
  if (!process_) return;
  syscall(SYS_pidfd_send_signal, process_.value(), SIGKILL, nullptr, 0);
  pollfd end{process_.value(), POLLIN, 0};
  poll(&end, 1, std::chrono::milliseconds(kEndPatience).count());  // one that the kernel holds is left to die later
  siginfo_t ignored{};
  waitid(kPidfd, static_cast<id_t>(process_.value()), &ignored, WEXITED | WNOHANG);
  process_.reset();
}

void Preload::wait(int interrupt, std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (is_loading()) {
    pollfd polls[] = {{socket_.value(), POLLIN, 0}, {interrupt, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int count = poll(polls, 2, static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX)));
    if (polls[0].revents != 0) read_hello();
    if (polls[1].revents != 0 || count == 0) return;
  }
}

void Preload::read_hello() {
  PreloadHello hello;
  const auto count = recv(socket_.value(), &hello, sizeof hello, 0);
  if (count < 0 && errno == EINTR) return;
  if (count != sizeof hello) return fail("it ended before its main, or could not be loaded");
  if (hello.version != kPreloadVersion) return fail("it is linked to another version of yoke");
  if (hello.num_threads != 1) return fail(fmt::format("it has {} threads before its main", hello.num_threads));
  is_ready_ = true;
}

std::optional<pid_t> Preload::start_rank(const RankPlan& plan, const StartOptions& options) {
  wait(-1, {});
  if (!is_ready() || plan.argv != argv_) return std::nullopt;
  auto environment = plan.environment;
  auto inherited = plan.inherited_fds;
  if (options.master_fd >= 0) {
    environment.push_back(fmt::format("YOKE_MASTER_LISTEN_FD={}", options.master_fd));
    inherited.push_back(options.master_fd);
  }
  const auto memory = to_descriptor(encode({.environment = std::move(environment),
                                            .inherited_fds = inherited,
                                            .cpus = plan.cpus,
                                            .memory_nodes = plan.memory_nodes,
                                            .process_group = plan.process_group,
                                            .file_limit = options.file_limit}));
  const auto or_own = [](int fd, int own) { return fd >= 0 ? fd : own; };
  std::vector<int> fds = {memory.value(), or_own(options.in_fd, STDIN_FILENO), or_own(options.out_fd, STDOUT_FILENO),
                          or_own(options.err_fd, STDERR_FILENO)};
  fds.insert(fds.end(), inherited.begin(), inherited.end());
  if (!send_fds(socket_.value(), fds)) {
    if (errno == EPIPE || errno == ECONNRESET) fail("it has ended");
    return std::nullopt;
  }
  // Without an answer there may be a rank or not: an exec could make it twice, so that is a failure to start.
  pollfd reply{socket_.value(), POLLIN, 0};
  int32_t pid = 0;
  int count = 0;
  while ((count = poll(&reply, 1, std::chrono::milliseconds(kPreloadPatience).count())) < 0 && errno == EINTR) {
  }
  if (count == 0 || recv(socket_.value(), &pid, sizeof pid, 0) != sizeof pid) {
    fail("it does not answer");
    errno = ETIMEDOUT;
    return -1;
  }
  if (pid > 0) return pid;
  errno = -pid;
  return -1;
}

}  // namespace yoke::launch
