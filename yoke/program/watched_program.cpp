#include "yoke/program/watched_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "yoke/base/error.h"

namespace yoke::program {
namespace {

/// Runs in the child: waits for start(), and exits if the parent closes the pipe without calling start().
void wait_to_go(int go) {
  char byte = 0;
  ssize_t count = 0;
  do {
    count = read(go, &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count != 1) _exit(0);
}

volatile int message_fd = -1;

void tell(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  const SignalMessages::Message message{signal, info->si_code <= 0, info->si_code <= 0 ? info->si_uid : 0};
  [[maybe_unused]] const ssize_t written = write(message_fd, &message, sizeof message);
  errno = saved;
}

constexpr std::array kSignals = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

}  // namespace

WatchedProgram::WatchedProgram(const std::vector<std::string>& argv, const WatchedProgramOptions& options) {
  auto go = make_pipe();
  auto failure = make_pipe();
  pid_ = spawn({.argv = argv,
                .environment = options.environment,
                .in = options.in,
                .out = options.out,
                .err = options.err,
                .new_session = options.new_session,
                .before_exec =
                    [&] {
                      go.write_end.reset();
                      wait_to_go(go.read_end.value());
                    },
                .exec_failed =
                    [&](int error) {
                      [[maybe_unused]] const auto count = write(failure.write_end.value(), &error, sizeof error);
                    }});
  if (pid_ < 0) throw system_error(errno, "starting a process for " + argv[0]);
  go_ = std::move(go.write_end);
  failure_ = std::move(failure.read_end);
}

WatchedProgram::~WatchedProgram() {
  if (!go_) return;
  go_.reset();
  wait_for_child(pid_);
}

int WatchedProgram::start() {
  const char byte = 1;
  while (write(go_.value(), &byte, 1) < 0 && errno == EINTR) {
  }
  go_.reset();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(failure_.value(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  return count == sizeof error ? error : 0;
}

void WatchedProgram::reap() {
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (child == pid_) status_ = shell_status(status);
  }
}

bool asks_to_end(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT; }

struct SignalMessages::Before {
  int signal;
  struct sigaction action;
};

SignalMessages::SignalMessages() : pipe_(make_pipe()) {
  for (const int fd : {pipe_.read_end.value(), pipe_.write_end.value()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  message_fd = pipe_.write_end.value();
  struct sigaction action = {};
  action.sa_sigaction = tell;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
  for (const int signal : kSignals) {
    Before before{signal, {}};
    sigaction(signal, nullptr, &before.action);
    if (before.action.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
    sigaction(signal, &action, nullptr);
    before_.push_back(before);
  }
}

SignalMessages::~SignalMessages() {
  for (const auto& before : before_) sigaction(before.signal, &before.action, nullptr);
  message_fd = -1;
}

std::optional<SignalMessages::Message> SignalMessages::next() {
  Message message;
  const auto count = read(pipe_.read_end.value(), &message, sizeof message);
  return count == sizeof message ? std::optional(message) : std::nullopt;
}

std::optional<int> wait_for(WatchedProgram& program, SignalMessages& messages, pid_t parent) {
  while (true) {
    program.reap();
    if (const auto status = program.status()) return status;
    pollfd poll_fd{messages.fd(), POLLIN, 0};
    poll(&poll_fd, 1, -1);
    while (const auto message = messages.next()) {
      // The user's process, this one's parent, was killed. The program, which may have run for days, continues.
      if (message->signal == SIGTERM && getppid() != parent) return std::nullopt;
      // The kernel sends signals from the terminal to the program too, so only signals from kill(2) are forwarded.
      if (message->signal != SIGCHLD && message->is_from_process) kill(program.pid(), message->signal);
    }
  }
}

void wait_for_process(int64_t pid, const device::ProcessInfo& info, SignalMessages& messages) {
  const auto is_there = [&] {
    const auto now = device::describe_process(pid);
    return now.is_visible.value_or(false) && now.start_ticks == info.start_ticks && now.state != 'Z';
  };
  for (bool is_asked_to_end = false; is_there() && !is_asked_to_end;) {
    pollfd poll_fd{messages.fd(), POLLIN, 0};
    poll(&poll_fd, 1, 50);
    while (const auto message = messages.next()) is_asked_to_end = is_asked_to_end || message->signal != SIGCHLD;
  }
}

}  // namespace yoke::program
