#include "yoke/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/error_file.h"
#include "yoke/base/format.h"
#include "yoke/launch/descendants.h"
#include "yoke/launch/failure_report.h"
#include "yoke/launch/group.h"
#include "yoke/launch/guardian.h"
#include "yoke/launch/log_files.h"
#include "yoke/launch/master_port.h"
#include "yoke/launch/output.h"
#include "yoke/launch/protocol.h"

namespace yoke::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// How long what is already printed may wait for its reader after the user asked to stop.
constexpr std::chrono::seconds kDrainAfterStop{1};
constexpr std::chrono::seconds kStatusEvery{1};
/// For descendants, when the guardian is no longer there to end them.
constexpr std::chrono::seconds kPatience{10};

/// Blocks the signals that end or concern a job. Those that were ignored when we started stay ignored: nohup, or a
/// shell's background job, wants it so.
UniqueFd take_signals(const LaunchSpec& spec) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  sigemptyset(&handled);
  std::set<int> numbers(spec.stop_signals.begin(), spec.stop_signals.end());
  numbers.insert({SIGUSR1, SIGUSR2});
  for (const int number : numbers) {
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

constexpr int64_t kOtherFiles = 32;

int64_t files_per_rank(const LaunchSpec& spec) {
  const bool has_logs = !spec.logs.redirects.is_empty() || !spec.logs.tee.is_empty();
  return 4 + (has_logs ? 2 : 0);  // two pipes with two ends, two logs
}

int64_t num_files_needed(const LaunchSpec& spec) { return spec.num_ranks * files_per_rank(spec) + kOtherFiles; }

/// Before anything of that size is planned.
void check_file_limit(const LaunchSpec& spec) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto hard = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, INT64_MAX));
  if (num_files_needed(spec) <= hard) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} ranks need {} open files and the limit is {}; start at most {} ranks, or raise the limit "
              "(ulimit -Hn, limits.conf, LimitNOFILE)",
              spec.num_ranks, num_files_needed(spec), hard,
              std::max<int64_t>(0, (hard - kOtherFiles) / files_per_rank(spec)));
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
      : spec_(spec),
        file_limit_(raise_file_limit(spec)),
        group_({.name = spec.name,
                .program = spec.argv.front(),
                .num_ranks = spec.num_ranks,
                .grace = spec.grace,
                .max_restarts = spec.max_restarts,
                .stop_signals = spec.stop_signals}),
        output_(spec.environment.value_or("NO_COLOR", "").empty()),
        keep_(children_of_before()),
        binding_(bind_here(spec)),
        run_folder_(make_run_folder(spec.logs, spec.run_id)),
        error_folder_(run_folder_.empty() ? error_folder_name() : ""),
        signals_(take_signals(spec)) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    if (is_guardian_) return;
    std::error_code ignored;
    if (!error_folder_.empty()) std::filesystem::remove_all(error_folder_, ignored);
    release_guardian();
  }

  int run() {
    if (spec_.bind.kind != BindMode::Kind::kAuto && !spec_.quiet) {
      for (const auto& warning : binding_.warnings) output_.say(fmt::format("{}: {}", spec_.name, warning));
    }
    has_status_ = output_.has_terminal() && !spec_.quiet && spec_.num_ranks > 1;  // one rank alone has the terminal
    if (!run_folder_.empty() && !spec_.quiet) output_.say(fmt::format("{}: logs are in {}", spec_.name, run_folder_));
    for (;;) {
      run_attempt();
      if (const auto notice = group_.begin_again()) {
        if (!spec_.quiet) output_.say(*notice);
      } else {
        break;
      }
    }
    has_status_ = false;
    output_.show_status("");
    output_.flush();
    if (const auto reason = group_.reason(); !reason.empty()) output_.say(reason);
    while (!output_.is_finished() && !is_drain_over()) step();
    return group_.exit_code();
  }

 private:
  void run_attempt() {
    auto master = take_master_port(spec_.master_addr, spec_.master_port);
    const auto log_folder =
        run_folder_.empty() ? "" : make_attempt_folder(run_folder_, group_.num_restarts(), spec_.num_ranks);
    ranks_ = plan(spec_, {.binding = binding_,
                          .master_port = master.port,
                          .master_listen_fd = master.socket.value(),
                          .on_a_terminal = isatty(STDOUT_FILENO) == 1,
                          .restart_count = group_.num_restarts(),
                          .log_folder = log_folder,
                          .error_folder = error_folder_});
    for (auto* filter : {&out_filter_, &err_filter_}) filter->file.reset();
    if (!log_folder.empty()) {
      open_filter(out_filter_, spec_.logs.out_filters, log_folder + "/filtered_stdout.log");
      open_filter(err_filter_, spec_.logs.err_filters, log_folder + "/filtered_stderr.log");
    }
    start_guardian(std::move(master.socket));
    while (is_guardian_there_) step();
    if (!is_done_) {
      waitpid(guardian_, nullptr, 0);
      end_without_guardian();
      guardian_ = -1;
    }
    while (!output_.is_read() && !is_drain_over()) step();
    output_.close_streams();
    report_failure();
    read_signals();  // of the time when nobody was left to be told
  }

  static void open_filter(LineFilter& filter, const std::vector<std::string>& texts, const std::string& path) {
    if (texts.empty()) return;
    filter.texts = texts;
    filter.file = open_log(path);
  }

  /// The end of a rank's stream that it writes to; the other one goes to the output.
  UniqueFd connect(const StreamPlan& stream, LineFilter& filter, StreamSource& source) {
    UniqueFd file;
    if (!stream.file.empty()) file = open_log(stream.file);
    if (!stream.is_piped()) return file;
    auto pipe = make_pipe();
    source = {std::move(pipe.read_end), std::move(file), stream.is_filtered ? &filter : nullptr};
    return std::move(pipe.write_end);
  }

  void start_guardian(UniqueFd master_socket) {
    std::vector<RankOutput> outputs(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      StreamSource out, err;
      outputs[i].out = connect(ranks_[i].out, out_filter_, out);
      outputs[i].err = connect(ranks_[i].err, err_filter_, err);
      output_.add_rank(ranks_[i].rank, ranks_[i].prefix, std::move(out), std::move(err));
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw system_error(errno, "making a socket");
    UniqueFd control(pair[0]), guardians_end(pair[1]);
    become_subreaper();  // if the guardian is killed, what it guarded comes to us

    const pid_t guardian = fork();
    if (guardian < 0) throw system_error(errno, "starting the guardian process");
    if (guardian > 0) {
      release_guardian();  // of the attempt before: there is another now
      guardian_ = guardian;
      control_ = std::move(control);
      is_guardian_there_ = true;
      is_done_ = false;
      return;
    }
    is_guardian_ = true;
    control.reset();
    control_.reset();
    signals_.reset();
    output_.close_streams();
    guard({.ranks = &ranks_,
           .outputs = std::move(outputs),
           .control = std::move(guardians_end),
           .file_limit = file_limit_,
           .close_after_start = {master_socket.value()},
           .folder = error_folder_});
  }

  /// It has ended all ranks, and waits for this.
  void release_guardian() {
    if (guardian_ <= 0) return;
    send_message(control_.value(), {Message::Kind::kRelease});
    control_.reset();
    waitpid(guardian_, nullptr, 0);
    guardian_ = -1;
  }

  /// What the user should know beside the reason.
  void report_failure() {
    if (!group_.failure()) return;
    FailureFacts facts{.first_exited = group_.failure()->rank};
    for (const auto& rank : ranks_) {
      if (const auto report = read_error_file(rank.error_file)) facts.reports.emplace(rank.rank, *report);
    }
    const auto& failed = ranks_[static_cast<size_t>(root_cause(facts))];
    const auto report = facts.reports.find(failed.rank);
    for (const auto& line : describe_failure(
             spec_.name, {.rank = failed.rank,
                         .report = report == facts.reports.end() ? std::nullopt : std::optional(report->second),
                         .last_lines = output_.lost_lines(failed.rank),
                         .log = failed.err.file})) {
      output_.say(line);
    }
  }

  /// A line at the bottom of a terminal, for jobs that take longer than a moment.
  void show_status() {
    if (!has_status_ || Clock::now() < next_status_) return;
    next_status_ = Clock::now() + kStatusEvery;
    const auto elapsed = std::chrono::floor<std::chrono::seconds>(Clock::now() - began_);
    if (elapsed < kStatusEvery) return;
    auto text = fmt::format("{}: {} of {} ranks up, {}", spec_.name, group_.num_alive(), spec_.num_ranks,
                            format_duration(elapsed));
    if (group_.num_restarts() > 0) text += fmt::format(", restart {} of {}", group_.num_restarts(), spec_.max_restarts);
    output_.show_status(text);
    output_.flush();
  }

  /// One turn of the loop: waits for something to happen, and deals with it.
  void step() {
    polls_.clear();
    polls_.push_back({signals_.value(), POLLIN, 0});
    polls_.push_back({is_guardian_there_ ? control_.value() : -1, POLLIN, 0});
    output_.add_polls(polls_);
    poll(polls_.data(), polls_.size(), timeout());
    show_status();
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
    if (has_status_ && (!until || next_status_ < *until)) until = next_status_;
    if (!until) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_.value(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      const auto decision = group_.on_signal(number, Clock::now());
      if (decision.order == Group::Decision::Order::kForward) {
        if (is_guardian_there_) carry_out(decision);
        continue;
      }
      is_told_to_stop_ = true;
      if (is_guardian_there_) {
        carry_out(decision);
      } else {
        drain_until_ = Clock::now();  // only the reader of our output is being waited for
      }
    }
  }

  void read_message() {
    const auto message = receive_message(control_.value());
    is_done_ = message && message->kind == Message::Kind::kDone;
    if (!message || is_done_) {
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
      case Message::Kind::kDone:
      case Message::Kind::kSignal:
      case Message::Kind::kForward:
      case Message::Kind::kKill:
      case Message::Kind::kRelease: return;  // ours to say
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

  const LaunchSpec& spec_;
  rlimit file_limit_;
  Group group_;
  Output output_;
  std::vector<pid_t> keep_;
  const Binding binding_;
  std::string run_folder_;    ///< For logs; empty: none.
  std::string error_folder_;  ///< For error files, removed at the end; empty: none.
  LineFilter out_filter_, err_filter_;
  UniqueFd signals_;
  std::vector<RankPlan> ranks_;  ///< Of this attempt.
  UniqueFd control_;
  pid_t guardian_ = -1;
  bool is_guardian_ = false;  ///< This process is.
  bool is_guardian_there_ = false;
  bool is_done_ = false;  ///< The guardian has ended everything; its end of file alone says only that it is gone.
  bool is_told_to_stop_ = false;
  std::optional<Clock::time_point> drain_until_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_status_ = began_;
  bool has_status_ = false;
  std::vector<pollfd> polls_;
};

}  // namespace

int launch(const LaunchSpec& spec) {
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  check_file_limit(spec);
  return Supervisor(spec).run();
}

}  // namespace yoke::launch
