#include "yoke/base/command_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/process.h"

namespace yoke {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a program has to end after SIGTERM, and then after SIGKILL, which does not end a process in a system call
/// of a file system that hangs.
constexpr std::chrono::seconds kAfterTerm{2}, kAfterKill{1};

int milliseconds_until(const std::optional<Clock::time_point>& end) {
  if (!end) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

/// Reads what a program prints until it has ended. What its background processes print later is not waited for.
/// Returns false if `end` passes before.
bool read_output(const UniqueFd& program, std::array<pollfd, 3>& polls, const std::array<std::string*, 2>& texts,
                 const std::optional<Clock::time_point>& end) {
  polls[2] = {program.value(), POLLIN, 0};
  while (true) {
    if (end && Clock::now() >= *end) return false;
    poll(polls.data(), polls.size(), milliseconds_until(end));
    bool has_news = false;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      std::array<char, 1 << 16> buffer;
      const auto count = read(polls[i].fd, buffer.data(), buffer.size());
      if (count > 0) texts[i]->append(buffer.data(), static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR)) polls[i].fd = -1;
      has_news = true;
    }
    if (polls[2].revents != 0 && !has_news) return true;
  }
}

/// Ends a program and its process group. Returns whether it has ended.
bool end_group(pid_t pid, const UniqueFd& program) {
  for (const auto& [signal, patience] : {std::pair(SIGTERM, kAfterTerm), {SIGKILL, kAfterKill}}) {
    kill(-pid, signal);
    pollfd news{program.value(), POLLIN, 0};
    if (poll(&news, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1) {
      kill(-pid, SIGKILL);  // its descendants
      return true;
    }
  }
  return false;
}

}  // namespace

CommandOutput run_quietly(const std::vector<std::string>& argv, const Environment& environment,
                          std::optional<std::chrono::milliseconds> limit) {
  auto out = make_pipe();
  auto err = make_pipe();
  SpawnOptions options{.argv = argv,
                       .environment = environment.to_strings(),
                       .in = kNullStream,
                       .out = out.write_end.value(),
                       .err = err.write_end.value(),
                       .blocked_signals = BlockedSignals::kNone};
  if (limit) {
    options.process_group = 0;
    options.death_signal = SIGTERM;  // because Ctrl-C does not reach another process group
  }
  const pid_t pid = spawn(options);
  if (pid < 0) throw system_error(errno, "starting a process for " + argv[0]);
  const auto program = open_process(pid);
  out.write_end.reset();
  err.write_end.reset();
  CommandOutput output;
  std::array<pollfd, 3> polls = {{{out.read_end.value(), POLLIN, 0}, {err.read_end.value(), POLLIN, 0}, {}}};
  const auto end = limit ? std::optional(Clock::now() + *limit) : std::nullopt;
  output.timed_out = !read_output(program, polls, {&output.out, &output.err}, end);
  output.status = output.timed_out && !end_group(pid, program) ? 128 + SIGKILL : wait_for_child(pid);
  return output;
}

int run_visibly(const std::vector<std::string>& argv, const Environment& environment) {
  HeldSignals signals;
  const pid_t pid = spawn({.argv = argv,
                           .environment = environment.to_strings(),
                           .in = kNullStream,
                           .out = STDERR_FILENO,
                           .blocked_signals = BlockedSignals::kNone});
  if (pid < 0) throw system_error(errno, "starting a process for " + argv[0]);
  const auto program = open_process(pid);
  if (program) signals.wait_readable(program.value(), pid);
  return wait_for_child(pid);
}

}  // namespace yoke
