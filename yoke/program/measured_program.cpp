#include "yoke/program/measured_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "yoke/base/error.h"
#include "yoke/launch/process/descendants.h"

namespace yoke::program {
namespace {

constexpr size_t kKeptBytes = 64 << 10;
constexpr std::chrono::seconds kPatience{10};  // the kernel may need time to end killed processes

}  // namespace

MeasuredProgram::MeasuredProgram(const MeasuredProgramOptions& options) : copy_to_(options.copy_to) {
  launch::become_subreaper();
  auto pipe = make_pipe();
  fcntl(pipe.read_end.value(), F_SETFL, O_NONBLOCK);
  pid_ = spawn({.argv = options.argv,
                .environment = options.environment,
                .in = kNullStream,
                .out = pipe.write_end.value(),
                .err = pipe.write_end.value(),
                .new_session = true,
                .death_signal = SIGKILL});
  if (pid_ < 0) throw system_error(errno, "starting a process for " + options.argv[0]);
  output_fd_ = std::move(pipe.read_end);
}

MeasuredProgram::~MeasuredProgram() { kill_all(); }

void MeasuredProgram::wait(SignalMessages& messages, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!status_ && !interruption_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return;
    std::array<pollfd, 2> fds = {pollfd{messages.fd(), POLLIN, 0}, {output_fd_.value(), POLLIN, 0}};
    poll(fds.data(), output_fd_ ? 2 : 1, static_cast<int>(left));
    take_output();
    while (const auto message = messages.next()) {
      if (asks_to_end(message->signal)) interruption_ = message->signal;
    }
    reap();
  }
}

bool MeasuredProgram::end(SignalMessages& messages, std::chrono::milliseconds grace) {
  const auto before = interruption_;
  interruption_.reset();
  if (!status_) {
    if (kill(-pid_, SIGTERM) != 0) kill(pid_, SIGTERM);  // the program may not have created its process group yet
    wait(messages, grace);
  }
  const bool has_ended = status_.has_value();
  if (!interruption_) interruption_ = before;
  kill_all();
  return has_ended;
}

void MeasuredProgram::take_output() {
  if (!output_fd_) return;
  char buffer[1 << 16];
  // Reads a limited amount: a program that prints without end must not keep this process from other work.
  for (int part = 0; part < 16; ++part) {
    const auto count = read(output_fd_.value(), buffer, sizeof buffer);
    if (count < 0) return;
    if (count == 0) return output_fd_.reset();
    output_.append(buffer, static_cast<size_t>(count));
    if (output_.size() > 2 * kKeptBytes) output_.erase(0, output_.size() - kKeptBytes);
    if (copy_to_ == kNullStream) continue;
    [[maybe_unused]] const auto written = write(copy_to_, buffer, static_cast<size_t>(count));
  }
}

void MeasuredProgram::reap() {
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (child == pid_) status_ = shell_status(status);
  }
  if (status_) take_output();
}

void MeasuredProgram::kill_all() {
  sigset_t child_ended, before;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ended, &before);
  launch::end_descendants({}, kPatience);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace yoke::program
