#include "yoke/launch/process/preload.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/contract/preload.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/process/elf_libraries.h"
#include "yoke/launch/process/python_program.h"

namespace yoke::launch {
namespace {

constexpr const char* kLibrary = "libyoke_dist.so";
/// How long a fork may take. It takes long if the machine swaps.
constexpr std::chrono::seconds kPreloadPatience{30};
constexpr std::chrono::seconds kEndPatience{1};
/// P_PIDFD of waitid(). Only glibc 2.36 and later define it.
constexpr auto kPidfd = static_cast<idtype_t>(3);

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
    if (word.find("${local_rank}") != word.npos)
      return "the ranks' arguments differ, because they contain ${local_rank}";
  }
  // OpenMP reads these variables when it is loaded, before the rank is known. It would bind threads to CPUs of other
  // ranks.
  for (const char* variable : {"OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    if (environment.contains(variable))
      return fmt::format(
          "unset {}: OpenMP would read it before the ranks are forked, and bind threads of a rank to CPUs of other "
          "ranks",
          variable);
  }
  if (const auto bound = environment.value_or("OMP_PROC_BIND", "false"); bound != "false" && bound != "FALSE") {
    return "OMP_PROC_BIND is set: OpenMP would read it before the ranks are forked, and would then bind threads to "
           "CPUs "
           "of other ranks; unset it";
  }
  if (python_program(argv)) {
    for (const char* observer : {variable::kProfile, variable::kStepTimes, variable::kLockStep}) {
      if (environment.contains(observer)) return fmt::format("the program is observed ({})", observer);
    }
    return std::nullopt;
  }
  if (is_python(name)) {
    return fmt::format(
        "{} is started without a script, as with -c, or with an option that --preload does not know; give the script "
        "itself: yoke run --preload -n 2 train.py",
        name);
  }
  const auto program = find_program(name, environment);
  struct stat status {};
  if (!program || stat(program->c_str(), &status) != 0) return name + " is not found";
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) return name + " is a set-user-ID program";
  try {
    const auto libraries = needed_libraries(*program);
    if (!libraries) return name + " is not a dynamically linked program";
    if (std::find(libraries->begin(), libraries->end(), kLibrary) == libraries->end()) {
      return fmt::format("{} is not linked to {}", name, kLibrary);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

Preload::Preload(const std::vector<RankPlan>& ranks, const PythonLoading& python) : argv_(ranks.at(0).argv) {
  const auto program = python_program(argv_);
  auto sockets = make_socket_pair();
  socket_ = std::move(sockets.near);
  auto environment = common_environment(ranks);
  environment.push_back(fmt::format("{}={}", variable::kPreloadFd, sockets.far.value()));
  pid_ = spawn({
      .argv = program ? loading_command(*program, python.loader, python.modules) : argv_,
      .environment = std::move(environment),
      .in = kNullStream,
      .out = STDERR_FILENO,  // the loader's messages must be visible, but not in the output of a rank
      .inherited_fds = {sockets.far.value()},
      .process_group = 0,  // SIGKILL to the launcher's group, in which the guardian may be, must not reach the program
      .death_signal = SIGKILL,
      // Signals stay blocked until a rank is set up: a scheduler that signals every process must not end the program.
      .blocked_signals = BlockedSignals::kAll,
  });
  if (pid_ < 0) throw system_error(errno, "starting the program that --preload loads");
  process_ = open_process(pid_);
}

Preload::~Preload() { fail(""); }

void Preload::fail(std::string reason) {
  reason_ = std::move(reason);
  socket_.reset();  // closing the socket ends the program, unless it hangs
  if (!process_) return;
  syscall(SYS_pidfd_send_signal, process_.value(), SIGKILL, nullptr, 0);
  pollfd end{process_.value(), POLLIN, 0};
  poll(&end, 1, std::chrono::milliseconds(kEndPatience).count());  // a process that is blocked in the kernel ends later
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
  char message[sizeof hello + 4096];
  const auto count = recv(socket_.value(), message, sizeof message, 0);
  if (count < 0 && errno == EINTR) return;
  if (count < static_cast<ssize_t>(sizeof hello)) {
    return fail("the program ended before its main, or could not be loaded");
  }
  std::memcpy(&hello, message, sizeof hello);
  if (hello.version != kPreloadVersion) return fail("the program is linked to a different version of yoke");
  if (count > static_cast<ssize_t>(sizeof hello)) return fail(std::string(message + sizeof hello, message + count));
  if (hello.num_threads != 1) return fail(fmt::format("the program has {} threads before its main", hello.num_threads));
  is_ready_ = true;
}

std::optional<pid_t> Preload::start_rank(const RankPlan& plan, const StartOptions& options) {
  wait(-1, {});
  if (!is_ready() || plan.argv != argv_) return std::nullopt;
  const auto process = to_rank_process(plan, options);
  FieldWriter fields;
  encode(process, fields);
  const auto memory = to_descriptor(fields.bytes());
  const auto or_own = [](int fd, int own) { return fd >= 0 ? fd : own; };
  std::vector<int> fds = {memory.value(), or_own(options.in_fd, STDIN_FILENO), or_own(options.out_fd, STDOUT_FILENO),
                          or_own(options.err_fd, STDERR_FILENO)};
  fds.insert(fds.end(), process.inherited_fds.begin(), process.inherited_fds.end());
  if (!send_with_fds(socket_.value(), std::as_bytes(std::span("", 1)), fds)) {
    if (errno == EPIPE || errno == ECONNRESET) fail("the preloaded program has ended");
    return std::nullopt;
  }
  // Without an answer it is unknown whether the rank was forked. Starting it by exec might start it twice, so this
  // start fails.
  pollfd reply{socket_.value(), POLLIN, 0};
  int32_t pid = 0;
  int count = 0;
  while ((count = poll(&reply, 1, std::chrono::milliseconds(kPreloadPatience).count())) < 0 && errno == EINTR) {
  }
  if (count == 0 || recv(socket_.value(), &pid, sizeof pid, 0) != sizeof pid) {
    fail("the preloaded program does not answer");
    errno = ETIMEDOUT;
    return -1;
  }
  if (pid > 0) return pid;
  errno = -pid;
  return -1;
}

}  // namespace yoke::launch
