#include "yoke/launch/supervisor.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "yoke/base/error.h"
#include "yoke/device/cpu/count.h"
#include "yoke/launch/descendants.h"
#include "yoke/launch/group.h"
#include "yoke/launch/guardian.h"
#include "yoke/launch/master_port.h"
#include "yoke/launch/output.h"
#include "yoke/launch/protocol.h"

namespace yoke::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// How long what is already printed may wait for its reader after the user asked to stop.
constexpr std::chrono::seconds kDrainAfterStop{1};
/// For descendants, when the guardian is no longer there to end them.
constexpr std::chrono::seconds kPatience{10};

/// Blocks the signals that end or concern a job. Those that were ignored when we started stay ignored: nohup, or a
/// shell's background job, wants it so.
UniqueFd take_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&handled, number);
  }
  sigset_t blocked = handled;
  sigaddset(&blocked, SIGCHLD);  // end_descendants() waits for it
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  UniqueFd fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw system_error(errno, "taking signals");
  return fd;
}

constexpr int64_t kFilesPerRank = 4;  // two pipes with two ends
constexpr int64_t kOtherFiles = 32;

int64_t num_files_needed(const LaunchSpec& spec) { return spec.num_ranks * kFilesPerRank + kOtherFiles; }

/// Before anything of that size is planned.
void check_file_limit(const LaunchSpec& spec) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto hard = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, INT64_MAX));
  if (num_files_needed(spec) <= hard) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} ranks need {} open files and the limit is {}; start at most {} ranks, or raise the limit "
              "(ulimit -Hn, limits.conf, LimitNOFILE)",
              spec.num_ranks, num_files_needed(spec), hard, std::max<int64_t>(0, (hard - kOtherFiles) / kFilesPerRank));
}

/// Returns the limit as it was: the ranks' own.
rlimit raise_file_limit(const LaunchSpec& spec) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  if (static_cast<rlim_t>(num_files_needed(spec)) > before.rlim_cur) {
    rlimit raised = before;
    raised.rlim_cur = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &raised);
  }
  return before;
}

/// Children that were there before us, since a shell may exec yoke with jobs in its background: not ours to end.
std::vector<pid_t> children_of_before() {
  std::vector<pid_t> result;
  if (has_children()) {
    for (const auto& process : descendants()) result.push_back(process.pid);
  }
  return result;
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchSpec& spec)
      : file_limit_(raise_file_limit(spec)),
        group_({.name = spec.name, .program = spec.argv.front(), .num_ranks = spec.num_ranks, .grace = spec.grace}),
        output_(spec.environment.value_or("NO_COLOR", "").empty()),
        keep_(children_of_before()),
        signals_(take_signals()) {}

  int run(const std::vector<RankPlan>& ranks, std::vector<UniqueFd> held) {
    start_guardian(ranks, held);
    held.clear();
    while (is_guardian_there_) step();
    waitpid(guardian_, nullptr, 0);
    if (!is_done_) end_without_guardian();
    while (!output_.is_read() && !is_drain_over()) step();
    if (const auto reason = group_.reason(); !reason.empty()) output_.say(reason);
    while (!output_.is_finished() && !is_drain_over()) step();
    return group_.exit_code();
  }

 private:
  void start_guardian(const std::vector<RankPlan>& ranks, const std::vector<UniqueFd>& held) {
    std::vector<RankOutput> outputs(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].inherits_output) continue;
      auto out = make_pipe();
      auto err = make_pipe();
      output_.add_rank(ranks[i].rank, ranks[i].prefix, std::move(out.read_end), std::move(err.read_end));
      outputs[i] = {std::move(out.write_end), std::move(err.write_end)};
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw system_error(errno, "making a socket");
    control_ = UniqueFd(pair[0]);
    UniqueFd guardians_end(pair[1]);
    become_subreaper();  // if the guardian is killed, what it guarded comes to us

    guardian_ = fork();
    if (guardian_ < 0) throw system_error(errno, "starting the guardian process");
    if (guardian_ > 0) return;
    control_.reset();
    signals_.reset();
    output_.close_streams();
    GuardianOptions options{
        .ranks = &ranks, .outputs = std::move(outputs), .control = std::move(guardians_end), .file_limit = file_limit_};
    for (const auto& fd : held) options.close_after_start.push_back(fd.value());
    guard(std::move(options));
  }

  /// One turn of the loop: waits for something to happen, and deals with it.
  void step() {
    polls_.clear();
    polls_.push_back({signals_.value(), POLLIN, 0});
    polls_.push_back({is_guardian_there_ ? control_.value() : -1, POLLIN, 0});
    output_.add_polls(polls_);
    poll(polls_.data(), polls_.size(), timeout());
    if (polls_[0].revents != 0) read_signals();
    if (polls_[1].revents != 0) read_message();
    output_.read_and_write(polls_, 2, !is_guardian_there_);
    if (const auto time = group_.next_time(); is_guardian_there_ && time && Clock::now() >= *time) {
      carry_out(group_.on_time(Clock::now()));
    }
  }

  int timeout() const {
    if (!is_guardian_there_ && output_.can_read()) return 0;
    auto until = is_guardian_there_ ? group_.next_time() : drain_until_;
    if (!until) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_.value(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (!is_guardian_there_) {
        drain_until_ = Clock::now();  // only the reader of our output is being waited for
        continue;
      }
      const bool may_be_last = number != SIGUSR1 && number != SIGUSR2;
      if (may_be_last) is_told_to_stop_ = true;
      carry_out(group_.on_signal(number, Clock::now()));
    }
  }

  void read_message() {
    const auto message = receive_message(control_.value());
    if (!message) {
      is_guardian_there_ = false;
      if (is_told_to_stop_) drain_until_ = Clock::now() + kDrainAfterStop;
      return;
    }
    const auto now = Clock::now();
    switch (message->kind) {
      case Message::Kind::kStarted: return carry_out(group_.on_started(message->rank));
      case Message::Kind::kExited: return carry_out(group_.on_exited(message->rank, message->pid, message->value, now));
      case Message::Kind::kCannotRun: return carry_out(group_.on_cannot_run(message->rank, message->value, now));
      case Message::Kind::kCannotStart: return carry_out(group_.on_cannot_start(message->rank, message->value, now));
      case Message::Kind::kLeftBehind: return carry_out(group_.on_left_behind(message->pid));
      case Message::Kind::kDone: is_done_ = true; return;
      case Message::Kind::kSignal:
      case Message::Kind::kForward:
      case Message::Kind::kKill: return;  // ours to say
    }
  }

  void carry_out(const Group::Decision& decision) {
    using Order = Group::Decision::Order;
    if (!decision.notice.empty()) output_.say(decision.notice);
    switch (decision.order) {
      case Order::kNone: return;
      case Order::kForward: return send_message(control_.value(), {Message::Kind::kForward, -1, 0, decision.signal});
      case Order::kSignal: return send_message(control_.value(), {Message::Kind::kSignal, -1, 0, decision.signal});
      case Order::kKill: return send_message(control_.value(), {Message::Kind::kKill});
    }
  }

  void end_without_guardian() {
    group_.on_guardian_lost(guardian_);
    for (const auto& process : end_descendants(keep_, kPatience)) group_.on_left_behind(process.pid);
  }

  bool is_drain_over() const { return drain_until_ && Clock::now() >= *drain_until_; }

  rlimit file_limit_;
  Group group_;
  Output output_;
  std::vector<pid_t> keep_;
  UniqueFd signals_;
  UniqueFd control_;
  pid_t guardian_ = -1;
  bool is_guardian_there_ = true;
  bool is_done_ = false;  ///< The guardian has ended everything; its end of file alone says only that it is gone.
  bool is_told_to_stop_ = false;
  std::optional<Clock::time_point> drain_until_;
  std::vector<pollfd> polls_;
};

}  // namespace

int supervise(const LaunchSpec& spec, const std::vector<RankPlan>& ranks, std::vector<UniqueFd> held) {
  return Supervisor(spec).run(ranks, std::move(held));
}

int launch(const LaunchSpec& spec) {
  check_file_limit(spec);
  auto master = take_master_port(spec.master_port);
  const auto ranks = plan(spec, {.num_cpus = device::count_cpus().num_cpus,
                                 .master_port = master.port,
                                 .master_listen_fd = master.socket.value(),
                                 .on_a_terminal = isatty(STDOUT_FILENO) == 1});
  std::vector<UniqueFd> held;
  held.push_back(std::move(master.socket));
  return supervise(spec, ranks, std::move(held));
}

}  // namespace yoke::launch
