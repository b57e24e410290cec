#include "yoke/launch/group.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

#include <csignal>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/format.h"

namespace yoke::launch {
namespace {

using Order = Group::Decision::Order;

/// After so long the user is told what is being waited for.
constexpr std::chrono::seconds kNoticeAfter{1};

std::string ranks(int64_t count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

std::string message_of(int error_number) { return std::generic_category().message(error_number); }

bool only_forwarded(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

}  // namespace

std::string signal_name(int signal) {
  if (const char* name = sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  return fmt::format("signal {}", signal);
}

Group::Decision Group::on_signal(int signal, Time now) {
  if (only_forwarded(signal)) return {Order::kForward, signal};
  if (state_ == State::kKilled) return {};
  if (state_ == State::kStopping) {
    if (signal != SIGINT) return {Order::kSignal, signal};
    state_ = State::kKilled;  // a second Ctrl-C
    num_killed_ = static_cast<int64_t>(alive_.size());
    return {Order::kKill};
  }
  by_signal_ = true;
  exit_code_ = 128 + signal;
  cause_ = signal_name(signal);
  return stop(signal, now);
}

Group::Decision Group::on_started(int64_t rank) {
  alive_.insert(rank);
  if (state_ != State::kRunning && counts_stopped_) ++num_stopped_;  // the news of its start came late
  return {};
}

Group::Decision Group::on_exited(int64_t rank, int pid, int wait_status, Time now) {
  alive_.erase(rank);
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fail(128 + signal, fmt::format("rank {} (pid {}) was killed by {}", rank, pid, signal_name(signal)), now);
  }
  const int code = WEXITSTATUS(wait_status);
  if (code == 0) return {};
  return fail(code, fmt::format("rank {} (pid {}) exited with code {}", rank, pid, code), now);
}

Group::Decision Group::on_cannot_run(int64_t rank, int error_number, Time now) {
  alive_.erase(rank);
  const int code = error_number == ENOENT ? 127 : 126;  // as every shell
  auto decision = fail(code, fmt::format("cannot run '{}': {}", options_.program, message_of(error_number)), now);
  if (decision.order == Order::kSignal) {  // the others do not run it either
    counts_stopped_ = false;
    num_stopped_ = 0;
  }
  return decision;
}

Group::Decision Group::on_cannot_start(int64_t rank, int error_number, Time now) {
  return fail(exit_status(ErrorCode::kUnavailable),
              fmt::format("cannot start rank {} of {}: {}; is a limit on processes reached (ulimit -u, or the cgroup's "
                          "pids.max)?",
                          rank, options_.num_ranks, message_of(error_number)),
              now);
}

Group::Decision Group::on_left_behind(int pid) {
  left_behind_ += fmt::format("{}{}", left_behind_.empty() ? "" : ", ", pid);
  return {};
}

Group::Decision Group::on_guardian_lost(int pid) {
  if (cause_.empty()) {
    exit_code_ = exit_status(ErrorCode::kUnavailable);
    cause_ = fmt::format("the guardian process (pid {}) was killed", pid);
    num_stopped_ = static_cast<int64_t>(alive_.size());
  }
  num_killed_ = static_cast<int64_t>(alive_.size());
  state_ = State::kKilled;
  return {};
}

Group::Decision Group::fail(int exit_code, std::string cause, Time now) {
  if (state_ != State::kRunning) return {};  // a consequence of the first failure, or of our own signal
  exit_code_ = exit_code;
  cause_ = std::move(cause);
  return stop(SIGTERM, now);
}

Group::Decision Group::stop(int signal, Time now) {
  state_ = State::kStopping;
  num_stopped_ = static_cast<int64_t>(alive_.size());
  stopped_at_ = now;
  return {Order::kSignal, signal};
}

std::optional<Group::Time> Group::next_time() const {
  if (state_ != State::kStopping) return std::nullopt;
  const auto end = stopped_at_ + options_.grace;
  return noticed_ ? end : std::min<Time>(end, stopped_at_ + kNoticeAfter);
}

Group::Decision Group::on_time(Time now) {
  if (state_ != State::kStopping) return {};
  const auto left = stopped_at_ + options_.grace - now;
  if (left.count() > 0) {
    noticed_ = true;
    return {Order::kNone, 0,
            fmt::format("{}: {}; waiting up to {} for {} to stop; Ctrl-C kills at once", options_.name, cause_,
                        format_duration(left),
                        alive_.empty() ? "what the ranks started" : ranks(static_cast<int64_t>(alive_.size())))};
  }
  state_ = State::kKilled;
  grace_is_over_ = true;
  num_killed_ = static_cast<int64_t>(alive_.size());
  return {Order::kKill};
}

std::string Group::reason() const {
  std::string line;
  if (!cause_.empty()) {
    line = fmt::format("{}: {}", options_.name, cause_);
    if (num_stopped_ > 0) {
      line += by_signal_ ? fmt::format("; stopped {}", ranks(num_stopped_))
                         : fmt::format("; stopped the {} other rank{}", num_stopped_, num_stopped_ == 1 ? "" : "s");
    }
    if (num_killed_ > 0) {
      line += fmt::format(", {} of them by SIGKILL", num_killed_);
      if (grace_is_over_) line += fmt::format(" after {}", format_duration(options_.grace));
    }
  }
  if (!left_behind_.empty()) {
    line += fmt::format("{}left behind, since SIGKILL does not end them (they wait in the kernel): pid {}",
                        line.empty() ? options_.name + ": " : "; ", left_behind_);
  }
  return line;
}

}  // namespace yoke::launch
