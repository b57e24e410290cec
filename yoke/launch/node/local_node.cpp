#include "yoke/launch/node/local_node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/host.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/port_owner.h"
#include "yoke/launch/output/log_files.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/launch/process/guardian.h"
#include "yoke/launch/process/preload.h"
#include "yoke/launch/process/step_daemon.h"
#include "yoke/launch/process/store_users.h"

namespace yoke::launch {
namespace {

using Kind = NodeEvent::Kind;

/// If the guardian was killed, this process ends its descendants. They may take this long.
constexpr std::chrono::seconds kNodePatience{10};
constexpr int64_t kOtherFiles = 32;

/// How often the states of ranks are looked at: each second, or with a limit of waiting in the kernel as torchrun does
/// (--monitor-interval).
std::chrono::milliseconds interval_of_looks(const LaunchSpec& spec) {
  return std::chrono::milliseconds(spec.kernel_sleep_limit.count() > 0 ? 100 : 1000);
}

int64_t files_per_rank(const LaunchSpec& spec) {
  const bool has_logs = !spec.logs.redirects.is_empty() || !spec.logs.tee.is_empty();
  return 4 + (has_logs ? 2 : 0);  // two pipes with two ends each, and two logs
}

/// No job reaches this. Most is kept for Gloo, with which each rank of each group has addresses for all others.
int64_t store_limit_bytes(int64_t world_size) { return (int64_t{256} + 4 * world_size) << 20; }

int64_t num_files_needed(const LaunchSpec& spec) { return spec.num_ranks * files_per_rank(spec) + kOtherFiles; }

/// Raises the limit of open files if the ranks need it. Returns the old limit.
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

/// Returns the children that this process had before exec. A shell with background jobs may exec yoke, which must not
/// end these jobs.
std::vector<pid_t> children_of_before() {
  std::vector<pid_t> result;
  if (has_children()) {
    for (const auto& process : descendants()) result.push_back(process.pid);
  }
  return result;
}

}  // namespace

void check_file_limit(const LaunchSpec& spec) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto hard = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, INT64_MAX));
  if (num_files_needed(spec) <= hard) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} need {} open files and the limit is {}; start at most {}, or raise the limit "
              "(ulimit -Hn, limits.conf, LimitNOFILE)",
              counted(spec.num_ranks, "rank"), num_files_needed(spec), hard,
              counted(std::max<int64_t>(0, (hard - kOtherFiles) / files_per_rank(spec)), "rank"));
}

LocalNode::LocalNode(const LaunchSpec& spec, bool is_screen_here, NodeObserver& observer)
    : spec_(spec),
      observer_(observer),
      is_screen_here_(is_screen_here),
      terminal_group_(is_screen_here && has_controlling_terminal() ? getpgrp() : 0),
      step_daemon_(step_daemon_of(ancestors())),
      keep_(children_of_before()),
      binding_(bind_here(spec)),
      file_limit_(raise_file_limit(spec)),
      run_folder_(make_run_folder(spec.logs, spec.run_id)),
      error_folder_(run_folder_.empty() || spec.replacements > 0 ? error_folder_name() : ""),
      reader_(
          {.has_room = [this](bool is_err) { return observer_.has_room(is_err); },
           .take = [this](int64_t rank, bool is_err, const auto& bytes) { observer_.on_output(rank, is_err, bytes); },
           .complain = [this](const std::string& line) { tell({.kind = Kind::kNotice, .text = line}); }}),
      states_(interval_of_looks(spec)) {
  start_guardian();
}

LocalNode::~LocalNode() {
  if (is_guardian_) return;
  control_.reset();  // the guardian then ends the remaining processes, and itself
  if (guardian_ > 0) waitpid(guardian_, nullptr, 0);
  std::error_code ignored;
  if (!error_folder_.empty())
    std::filesystem::remove_all(error_folder_, ignored);  // the guardian removes it, unless it was killed
}

void LocalNode::start_guardian() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    throw system_error(errno, "making sockets to the process that starts the ranks");
  UniqueFd control(pair[0]), guardians_end(pair[1]);
  become_subreaper();  // if the guardian is killed, this process becomes the parent of its children
  guardian_ = fork();  // not spawn(): see guard()
  if (guardian_ < 0) throw system_error(errno, "starting the process that starts and watches the ranks");
  if (guardian_ > 0) {
    control_ = std::move(control);
    return;
  }
  is_guardian_ = true;
  control.reset();
  guard({.control = std::move(guardians_end),
         .keep_open = spec_.inherited_fds,
         .file_limit = file_limit_,
         .has_terminal = has_terminal(),
         .replaces = spec_.replacements > 0,
         .python = spec_.python,
         .folder = error_folder_});
}

void LocalNode::prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) {
  try {
    take_master(address, port, or_any);
    tell({.kind = Kind::kPrepared, .value = master_.port});
  } catch (const Error& error) {
    std::string advice;
    if (error.code() == ErrorCode::kNotFound) {
      advice = fmt::format("; correct {}", spec_.master_addr_option);
    } else if (port) {
      advice = fmt::format("; without {} a free one is taken", spec_.master_port_option);
    }
    tell({.kind = Kind::kRefused, .value = exit_status(error.code()), .text = error.what() + advice});
  }
}

void LocalNode::take_master(const std::string& address, std::optional<uint16_t> port, bool or_any) {
  if (port && *port != claimed_port_) {  // first, because the store of another job may already listen there
    port_claim_ = claim_port(*port);
    claimed_port_ = *port;
  }
  master_ = take_master_port(address, port, or_any);
}

/// Decides once, at the first start. If preloading is impossible, the observer gets a notice. It gets no notices before
/// the first start.
void LocalNode::decide_on_preload() {
  if (!spec_.preload || has_decided_) return;
  has_decided_ = true;
  const auto why_not = Preload::why_not(spec_.argv, spec_.environment);
  may_preload_ = !why_not;
  if (why_not) say_not_preloaded(*why_not);
}

void LocalNode::start(const NodePlace& place) {
  if (state_ != State::kIdle)
    throw Error(ErrorCode::kInternal, "this node was told to start ranks while its earlier ranks still run");
  try {
    if (!control_) throw Error(ErrorCode::kUnavailable, "the process that starts and watches the ranks was killed");
    if (place.first_replacement > 0) check_room();
    decide_on_preload();
    master_port_ = place.master_port;
    plan_ranks(place);
    send_plan();
    has_failed_ = false;
    has_spares_ = place.has_spares;
    keeps_.clear();
    state_ = State::kRunning;
  } catch (const Error& error) {
    // The guardian may be waiting for the rest of the plan, so it must be told that this start is over.
    if (control_) send_message(control_.value(), {Message::Kind::kKill});
    tell({.kind = Kind::kRefused, .value = exit_status(error.code()), .text = error.what()});
  }
  master_ = {};  // the guardian has the socket, or it is not needed
}

/// On a spare host, whose new ranks would fail otherwise: another spare may have room.
void LocalNode::check_room() const {
  const auto folder = std::filesystem::path(error_folder_.empty() ? run_folder_ : error_folder_).parent_path();
  if (!folder.empty() && has_room_for_files(folder)) return;
  throw Error(ErrorCode::kUnavailable, "nothing can be written to {}, where ranks keep their state",
              folder.empty() ? "TMPDIR, /tmp or /var/tmp" : folder.string());
}

void LocalNode::open_filter(LineFilter& filter, const std::vector<std::string>& texts, const std::string& path) {
  if (texts.empty()) return;
  filter.texts = texts;
  filter.file = &reader_.add_log(path);
}

void LocalNode::plan_ranks(const NodePlace& place) {
  reader_.settle_logs();  // closes the logs of a start that failed
  if (run_folder_.empty() && error_folder_.empty() && place.restart_count == 0) {
    tell({.kind = Kind::kNotice,
          .text = "ranks cannot write error files, because TMPDIR, /tmp and /var/tmp are not writable; set TMPDIR or "
                  "give --log-dir"});
  }
  for (auto* filter : {&out_filter_, &err_filter_}) filter->file = nullptr;
  std::string log_folder;
  if (!run_folder_.empty()) {
    log_folder = make_attempt_folder(run_folder_, place.restart_count, spec_.num_ranks);
    open_filter(out_filter_, spec_.logs.out_filters, log_folder + "/filtered_stdout.log");
    open_filter(err_filter_, spec_.logs.err_filters, log_folder + "/filtered_stderr.log");
  }
  plans_ = plan(spec_, {.binding = binding_,
                        .place = place,
                        .terminal_group = terminal_group_,
                        .host = host_name(),
                        .on_a_terminal = is_screen_here_ ? isatty(STDOUT_FILENO) == 1 : spec_.heads_terminal,
                        .is_screen_here = is_screen_here_,
                        .log_folder = log_folder,
                        .error_folder = error_folder_});
  if (place.agent_serves_store && place.first_rank == 0) {
    plans_.push_back({.rank = -1,
                      .local_rank = -1,
                      .argv = {},
                      .environment = {},
                      .is_store = true,
                      .store_limit_bytes = store_limit_bytes(place.world_size)});
  }
}

/// Returns the end of a rank's stream that the rank writes to; this process reads the other end. A result without a
/// descriptor means /dev/null.
UniqueFd LocalNode::connect(const RankPlan& rank, bool is_err, LogStart log_start) {
  auto& filter = is_err ? err_filter_ : out_filter_;
  const auto& stream = is_err ? rank.err : rank.out;
  if (stream.is_own) return UniqueFd(fcntl(is_err ? STDERR_FILENO : STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!stream.is_piped()) return stream.file.empty() ? UniqueFd() : open_log(stream.file, log_start);
  auto* const copy = stream.file.empty() ? nullptr : &reader_.add_log(stream.file, log_start);
  auto pipe = make_pipe();
  reader_.add(rank.rank, is_err, {std::move(pipe.read_end), copy, stream.is_filtered ? &filter : nullptr, rank.prefix});
  return std::move(pipe.write_end);
}

void LocalNode::send_plan() {
  const auto text = to_descriptor(encode_plans(plans_));
  std::vector<int> descriptors = {text.value()};
  if (master_.socket) descriptors.push_back(master_.socket.value());

  struct Ends {
    UniqueFd out, err;
  };
  std::vector<Ends> ends(plans_.size());  // all pipes are opened first, so that errors come before a rank is started
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (!plans_[i].is_store) ends[i] = {connect(plans_[i], false), connect(plans_[i], true)};
  }
  send_message(
      control_.value(),
      {.kind = Message::Kind::kStart, .rank = may_preload_ ? 1 : 0, .value = static_cast<int32_t>(plans_.size())},
      descriptors);
  for (size_t i = 0; i < plans_.size(); ++i) {
    send_rank({.kind = Message::Kind::kRank, .rank = static_cast<int32_t>(i)}, {}, plans_[i], ends[i].out, ends[i].err);
    ends[i] = {};
  }
}

/// Sends a message about one rank, with `descriptors` and its streams.
void LocalNode::send_rank(Message message, std::vector<int> descriptors, const RankPlan& plan, const UniqueFd& out,
                          const UniqueFd& err) {
  const auto add = [&](RankStream which, int fd) {
    if (fd < 0) return;
    message.value |= which;
    descriptors.push_back(fd);
  };
  add(kStandardInput, plan.inherits_stdin && is_screen_here_ ? STDIN_FILENO : -1);
  add(kStandardOutput, out.value());
  add(kStandardError, err.value());
  send_message(control_.value(), message, descriptors);
}

void LocalNode::replace(int64_t rank, const Replacement& replacement) {
  if (state_ != State::kRunning) return;
  const auto plan =
      std::ranges::find_if(plans_, [&](const RankPlan& one) { return !one.is_store && one.rank == rank; });
  if (plan == plans_.end()) return;
  const auto prefix = std::string(variable::kReplacement) + "=";
  const auto of_copies = std::string(variable::kStateCopies) + "=";
  for (auto& variable : plan->environment) {
    if (variable.starts_with(prefix)) variable = fmt::format("{}{}", prefix, replacement.number);
    if (variable.starts_with(of_copies)) variable = of_copies + "1";  // its host is not replaced
  }
  try {
    const auto out = connect(*plan, false, LogStart::kAtEnd), err = connect(*plan, true, LogStart::kAtEnd);
    const auto text = to_descriptor(encode_plans({*plan}));
    send_rank(
        {.kind = Message::Kind::kReplace, .rank = static_cast<int32_t>(plan - plans_.begin()), .pid = replacement.pid},
        {text.value()}, *plan, out, err);
  } catch (const Error& error) {  // no descriptors are left, or a log cannot be opened
    tell({.kind = Kind::kRefused,
          .rank = rank,
          .value = exit_status(error.code()),
          .text = fmt::format("rank {} cannot be started again: {}", rank, error.what())});
  }
}

void LocalNode::tell_ranks(Order order, int signal) {
  if (state_ != State::kRunning) return;
  // A rank may have stopped the guardian (kill -STOP $PPID). The guardian must run to end the ranks.
  if (order == Order::kSignal || order == Order::kKill) kill(guardian_, SIGCONT);
  switch (order) {
    case Order::kNone: return;
    case Order::kForward: return send_signal(Message::Kind::kForward, signal);
    case Order::kSignal: return send_signal(Message::Kind::kSignal, signal);
    case Order::kKill: return send_message(control_.value(), {Message::Kind::kKill});
    case Order::kEndStore: return send_message(control_.value(), {Message::Kind::kEndStore});
  }
}

void LocalNode::send_signal(Message::Kind kind, int signal) {
  const bool is_told = signal == signal_of_terminal_;
  // A signal that ends the job may be an order of the head that comes before this process has read its own signal.
  const bool may_have = signal == signal_of_step_ || kind == Message::Kind::kSignal;
  send_message(
      control_.value(),
      {.kind = kind, .pid = is_told ? terminal_group_ : 0, .value = signal, .sender = may_have ? step_daemon_ : 0});
}

bool LocalNode::has_keyboard() const {
  return has_terminal() && is_in_foreground(STDIN_FILENO) &&
         std::ranges::any_of(plans_, [](const RankPlan& rank) { return rank.inherits_stdin; });
}

RankStreams LocalNode::streams(int64_t local_rank) const {
  const auto index = static_cast<size_t>(local_rank);
  if (index >= plans_.size()) return {};
  return {plans_[index].out, plans_[index].err};
}

void LocalNode::note_signal(const Signal& signal) {
  signal_of_terminal_ = signal.is_from_terminal ? signal.number : 0;
  signal_of_step_ = step_daemon_ != 0 && signal.sender == step_daemon_ ? signal.number : 0;
}

void LocalNode::pause(const Signal& signal) {
  if (state_ != State::kRunning) return;
  // SIGSTOP, because the kernel ignores SIGTSTP for a rank in its own session, which has no shell to continue it.
  send_message(
      control_.value(),
      {.kind = Message::Kind::kForward, .pid = signal.is_from_terminal ? terminal_group_ : 0, .value = SIGSTOP});
}

void LocalNode::resume() {
  if (state_ != State::kRunning) return;
  // Continues all ranks, including the one that uses the terminal, because `yoke stop` continues only this process.
  send_message(control_.value(), {.kind = Message::Kind::kForward, .value = SIGCONT});
}

void LocalNode::add_to(WaitSet& waits) {
  waits.read(control_.value(), has_message_);
  reader_.add_to(waits);
  if (state_ == State::kDraining && reader_.can_read()) waits.until(LoopTime());
  waits.until(states_.next_time());
}

void LocalNode::handle(LoopTime now) {
  // Reads the guardian's messages first, so that the event of a rank's start precedes its output.
  for (; has_message_ && control_; has_message_ = is_readable(control_.value())) read_message();
  if (const auto next = states_.next_time(); next && now >= *next) {
    tell_states(states_.look(now));
    tell_who_keeps();
    // A process with much memory takes seconds to end, so what was killed soon before the first failure counts on.
    if (!has_failed_ || spec_.replacements > 0) memory_kills_.look();
  }
  reader_.read(state_ == State::kDraining);
  if (state_ == State::kDraining && reader_.is_finished()) finish();
}

void LocalNode::read_message() {
  std::vector<UniqueFd> descriptors;
  const auto message = receive_message(control_.value(), &descriptors);
  if (!message) return lose_guardian();
  NodeEvent event{.pid = message->pid, .value = message->value};
  const auto* plan = message->rank >= 0 ? &plans_.at(static_cast<size_t>(message->rank)) : nullptr;
  if (plan != nullptr) event.rank = plan->rank;
  switch (message->kind) {
    case Message::Kind::kStarted: event.kind = Kind::kStarted; break;
    case Message::Kind::kCannotRun:
      event.kind = Kind::kCannotRun;
      event.text = spec_.argv.front();
      break;
    case Message::Kind::kCannotStart: event.kind = Kind::kCannotStart; break;
    case Message::Kind::kExited:
      if (plan->holds_master_port && message->value != 0) tell_who_took_port();
      event.kind = plan->is_store ? Kind::kStoreEnded : Kind::kExited;
      if (!plan->state_file.empty()) event.kept_step = read_kept_step(plan->state_file);
      break;
    case Message::Kind::kOnlyStore: event.kind = Kind::kOnlyStore; break;
    case Message::Kind::kLeftBehind: event.kind = Kind::kLeftBehind; break;
    case Message::Kind::kLeftovers:
      if (!descriptors.empty() && !spec_.quiet) {
        tell({.kind = Kind::kNotice,
              .text = fmt::format("ended what the ranks had left running: {}", text_of(descriptors.front()))});
      }
      return;
    case Message::Kind::kStoreRefused:
      tell(
          {.kind = Kind::kNotice,
           .text = fmt::format("user {} of this host tried to use the ranks' store (MASTER_PORT, {}), and may not: its "
                               "connections are closed",
                               name_and_uid(static_cast<uid_t>(message->value)), master_port_)});
      return;
    case Message::Kind::kStoreFull:
      tell({.kind = Kind::kNotice,
            .text =
                fmt::format("the ranks' store (MASTER_PORT, {}) is full: it keeps at most {} MiB, and has closed the "
                            "connection of a client that asked for more",
                            master_port_, plans_.back().store_limit_bytes >> 20)});
      return;
    case Message::Kind::kNotPreloaded:
      if (!descriptors.empty()) say_not_preloaded(text_of(descriptors.front()));
      return;
    case Message::Kind::kDone:
      state_ = State::kDraining;
      event.kind = Kind::kEnded;
      break;
    case Message::Kind::kStart:
    case Message::Kind::kRank:
    case Message::Kind::kSignal:
    case Message::Kind::kForward:
    case Message::Kind::kKill:
    case Message::Kind::kReplace:
    case Message::Kind::kEndStore: return;  // only the node sends these
  }
  watch(event);
  tell(event);
  if (event.kind == Kind::kExited && event.value != 0) tell_early_report(*plan);
}

/// While others still run, the user is told what this rank knows.
void LocalNode::tell_early_report(const RankPlan& plan) {
  auto report = read_error_file(plan.error_file);
  if (!report) return;
  tell({.kind = Kind::kReport, .rank = plan.rank, .value = 1, .text = plan.err.file, .report = std::move(report)});
}

void LocalNode::watch(NodeEvent& event) {
  if (event.kind == Kind::kStarted) {
    if (rank_of_.empty()) memory_kills_.begin();
    states_.add(event.pid);
    rank_of_[event.pid] = event.rank;
  } else if (event.kind == Kind::kExited) {
    states_.remove(event.pid);
    rank_of_.erase(event.pid);
    if (event.value == 0) return;
    if (event.value == SIGKILL) event.text = memory_kills_.why_killed();
    if (std::exchange(has_failed_, true)) return;
    tell_states(states_.look_at_all());  // soon all will be told to end, and be continued for that
  } else if (event.kind == Kind::kEnded) {
    for (const auto& [pid, rank] : std::exchange(rank_of_, {})) states_.remove(pid);  // abandoned
  }
}

void LocalNode::tell_states(const std::vector<ProcessStates::Change>& changes) {
  if (state_ != State::kRunning) return;
  for (const auto& [pid, state] : changes) {
    tell({.kind = Kind::kState, .rank = rank_of_.at(pid), .pid = static_cast<int>(pid), .value = state});
  }
}

/// If this host is lost, the head cannot ask any more.
void LocalNode::tell_who_keeps() {
  if (state_ != State::kRunning || !has_spares_) return;
  for (const auto& plan : plans_) {
    if (plan.is_store || plan.state_file.empty()) continue;
    const bool keeps = read_kept_step(plan.state_file).has_value();
    if (keeps == keeps_.contains(plan.rank)) continue;
    keeps ? static_cast<void>(keeps_.insert(plan.rank)) : static_cast<void>(keeps_.erase(plan.rank));
    tell({.kind = Kind::kKeeps, .rank = plan.rank, .value = keeps ? 1 : 0});
  }
}

/// A rank that serves the store itself cannot do so if another user was faster at its port.
void LocalNode::tell_who_took_port() {
  const auto socket = device::listener_at(master_port_);
  if (!socket || socket->uid == int64_t{geteuid()}) return;
  tell({.kind = Kind::kNotice,
        .text = fmt::format("user {} of this host serves the port that rank 0 has for its store (MASTER_PORT, {}), so "
                            "the rank may have failed for that reason",
                            name_and_uid(static_cast<uid_t>(socket->uid)), master_port_)});
}

void LocalNode::say_not_preloaded(const std::string& why) {
  if (spec_.quiet) return;
  tell({.kind = Kind::kNotice,
        .text = fmt::format("--preload is not used, and each rank loads the program itself: {}", printable(why))});
}

void LocalNode::lose_guardian() {
  control_.reset();
  tell({.kind = Kind::kGuardianLost, .pid = guardian_});
  for (const auto& process : end_descendants(keep_, kNodePatience))
    tell({.kind = Kind::kLeftBehind, .pid = process.pid});
  waitpid(guardian_, nullptr, 0);
  guardian_ = -1;
  if (state_ != State::kRunning) return;
  state_ = State::kDraining;
  tell({.kind = Kind::kEnded});
}

void LocalNode::finish() {
  state_ = State::kIdle;
  for (const auto& line : reader_.settle_logs()) {
    tell({.kind = Kind::kNotice, .value = 1, .text = line});
  }
  for (const auto& rank : plans_) {
    if (rank.is_store) continue;
    auto report = read_error_file(rank.error_file);
    const auto num_steps = rank.progress_file.empty() ? std::nullopt : read_progress(rank.progress_file);
    if (report || num_steps || has_failed_ || !rank.err.file.empty()) {
      tell({.kind = Kind::kReport,
            .rank = rank.rank,
            .text = rank.err.file,
            .report = std::move(report),
            .num_steps = num_steps});
    }
  }
  tell({.kind = Kind::kDone});
}

}  // namespace yoke::launch
