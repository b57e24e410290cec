#include "yoke/launch/job/rank_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "yoke/base/cpu_set.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/launch/process/process_states.h"

namespace yoke::launch {
namespace {

/// If ranks have not ended this long after they were told to, the user is told what the launcher waits for.
constexpr std::chrono::seconds kNoticeAfter{1};

/// If a rank has ended with status 0 and others still run after this time, the user is told, because they may wait for
/// that rank. Ranks of a training end within moments, but one may still write a last file.
constexpr std::chrono::seconds kLeftAfter{10};

/// A rank that gives up within this time after a loss probably does so because of it.
constexpr std::chrono::seconds kSoonAfterLoss{30};

/// If a rank is stopped, or waits in the kernel, for this time, the user is told. `yoke stack` stops a process for
/// moments, and a disk that is asleep takes seconds.
constexpr std::chrono::seconds kStayAfter{10};

/// A user who presses Ctrl-C kManyInterrupts times within kInterruptsWithin probably wants to end the job.
constexpr size_t kManyInterrupts = 3;
constexpr std::chrono::seconds kInterruptsWithin{2};
/// Another SIGINT within this time of the first one is the same request. As in yoke/dist/detail/stop_signal.h.
constexpr std::chrono::milliseconds kOneInterrupt{500};

constexpr int64_t kMaxCaughtColumns = 1000;

std::string these_ranks(std::vector<int64_t> list) {
  std::ranges::sort(list);
  return fmt::format("rank{} {}", list.size() == 1 ? "" : "s", to_list(list));
}

std::vector<int64_t> ranks_of(const std::vector<std::pair<int64_t, RankPolicy::Time>>& left) {
  std::vector<int64_t> ranks;
  for (const auto& [rank, time] : left) ranks.push_back(rank);
  return ranks;
}

std::string message_of(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

bool RankPolicy::ends_job(int signal) const {
  return std::ranges::find(options_.stop_signals, signal) != options_.stop_signals.end();
}

void RankPolicy::begin(int64_t num_ranks, std::vector<std::string> hosts) {
  options_.num_ranks = num_ranks;
  hosts_ = std::move(hosts);
}

/// Returns text such as "rank 3 (pid 4121 on b)".
std::string RankPolicy::describe(int64_t rank, int pid) const {
  return fmt::format("rank {} (pid {}{})", rank, pid, on_host(rank));
}

std::string RankPolicy::describe(const Culprit& culprit) const {
  if (culprit.ranks.size() > 1) return fmt::format("{} {}", these_ranks(culprit.ranks), culprit.what);
  const auto rank = culprit.ranks.front();
  const auto pid = attempt_.pids.find(rank);
  return fmt::format("{} {}", describe(rank, pid == attempt_.pids.end() ? 0 : pid->second), culprit.what);
}

std::string RankPolicy::on_host(int64_t rank) const {
  const auto index = static_cast<size_t>(rank);
  return index < hosts_.size() ? " on " + hosts_[index] : "";
}

RankPolicy::Decision RankPolicy::on_signal(int signal, Time now, int source, const std::string& what) {
  if (!ends_job(signal)) return {Order::kForward, signal};
  const bool is_second = !told_.insert(source).second;
  const bool is_stopping = attempt_.state == State::kStopping;
  if (is_stopping && is_told_to_end_ && !is_second) return {};  // the same request, sent to a different launcher
  if (signal == SIGINT) {
    if (is_stopping && interrupted_at_ && now - *interrupted_at_ <= kOneInterrupt) return {};
    if (!interrupted_at_) interrupted_at_ = now;
  }
  return end(signal, what.empty() ? signal_name(signal) : what,
             is_stopping && signal == SIGINT ? StopHow::kNow : StopHow::kWithGrace, now);
}

RankPolicy::Decision RankPolicy::on_interrupt_of_rank(Time now) {
  was_interrupted_ = true;
  interrupts_.push_back(now);
  std::erase_if(interrupts_, [&](Time time) { return time + kInterruptsWithin < now; });
  if (interrupts_.size() < kManyInterrupts) return {};
  interrupts_.clear();
  return {Order::kNone, 0,
          fmt::format("{}: Ctrl-C goes to the program, which has the terminal; Ctrl-\\ ends the job", options_.name)};
}

RankPolicy::Decision RankPolicy::on_stop(StopHow how, Time now) { return end(SIGTERM, "`yoke stop`", how, now); }

RankPolicy::Decision RankPolicy::end(int signal, std::string cause, StopHow how, Time now) {
  if (will_begin_again()) {  // without the signal, a restart would follow the failure
    attempt_.exit_code = 128 + signal;
    attempt_.cause = fmt::format("{} after {}", cause, attempt_.cause);
  }
  is_told_to_end_ = true;
  if (attempt_.state == State::kKilled) return {};
  if (attempt_.state == State::kRunning) {
    by_signal_ = true;
    attempt_.exit_code = 128 + signal;
    attempt_.cause = attempt_.cause_before.empty()
                         ? std::move(cause)
                         : fmt::format("{} before the next start, after {}", cause, attempt_.cause_before);
    stop(signal, now);
  }
  if (how == StopHow::kWithGrace) return {Order::kSignal, signal};
  attempt_.state = State::kKilled;
  attempt_.num_killed += static_cast<int64_t>(attempt_.alive.size());
  return {Order::kKill};
}

RankPolicy::Decision RankPolicy::on_started(int64_t rank, int pid) {
  attempt_.alive.insert(rank);
  attempt_.pids[rank] = pid;
  attempt_.cause_before.clear();
  if (attempt_.state != State::kRunning && attempt_.counts_stopped)
    ++attempt_.num_stopped;  // the report that this rank has started came late
  return {};
}

RankPolicy::Decision RankPolicy::on_exited(const RankEnd& end, Time now) {
  const auto& [rank, pid, wait_status, more, seen_at, kept_step] = end;
  attempt_.alive.erase(rank);
  attempt_.pids[rank] = pid;
  attempt_.stays.erase(rank);
  std::string no_replacement, before;
  if (wait_status != 0 && attempt_.state == State::kRunning) {
    const auto verdict = replace_rule_.judge({.rank = rank,
                                              .wait_status = wait_status,
                                              .step = kept_step,
                                              .has_survivors = !attempt_.alive.empty(),
                                              .some_have_left = !attempt_.left.empty()});
    if (verdict.replaces) {
      const auto number = replace_rule_.num_replaced();
      const auto loss = fmt::format("{} {}", describe(rank, pid), describe_wait_status(wait_status));
      attempt_.replaced = loss + ", and was started again";
      attempt_.replaced_at = now;
      return {.notice = fmt::format("{}: {}; starting it again, replacement {} of {}", options_.name, loss, number,
                                    options_.replacements),
              .replacement = Decision::Replacement{rank, pid, number}};
    }
    no_replacement = verdict.why;
    // The ranks had not got over the loss before: they have no state, or one gives up soon after it.
    const bool has_given_up = shell_status(wait_status) == exit_status(ErrorCode::kUnavailable) &&
                              now - attempt_.replaced_at < kSoonAfterLoss;
    if (!attempt_.replaced.empty() && (no_replacement.empty() ? has_given_up : !kept_step)) {
      before = "; before, " + attempt_.replaced;
    }
    attempt_.failure = {rank, pid, wait_status};
    attempt_.again = Attempt::Again::kCounted;
    auto& facts = attempt_.facts;
    facts.first_exited = rank;
    facts.first_failure_at = seen_at;
    const auto time_since = [now](Time then) { return std::chrono::floor<std::chrono::milliseconds>(now - then); };
    for (const auto& [other, stay] : attempt_.stays) facts.states[other] = {stay.state, time_since(stay.since)};
    for (const auto& [other, then] : attempt_.left) facts.left[other] = time_since(then);
  }
  attempt_.facts.wait_statuses[rank] = wait_status;
  if (wait_status == SIGKILL && attempt_.state == State::kStopping && attempt_.failure) {
    attempt_.facts.killed[rank] = more;
  }
  if (wait_status == 0 && attempt_.state == State::kRunning && options_.replacements > 0 && kept_step &&
      !attempt_.alive.empty()) {
    // The others wait for a process in its place, which would do the same again.
    attempt_.again = Attempt::Again::kCounted;
    return fail(exit_status(ErrorCode::kUnavailable),
                fmt::format("{} had ended with status 0 too early, after step {} of its training, and is not replaced",
                            describe(rank, pid), *kept_step),
                now);
  }
  if (wait_status == 0) {
    if (attempt_.state == State::kRunning && !attempt_.alive.empty()) attempt_.left.emplace_back(rank, now);
    return {};
  }
  return fail(shell_status(wait_status),
              fmt::format("{} {}{}{}{}{}", describe(rank, pid), describe_wait_status(wait_status), more,
                          no_replacement.empty() ? "" : ", and is not replaced, because ", no_replacement, before),
              now);
}

RankPolicy::Decision RankPolicy::on_state(int64_t rank, char state, Time now) {
  if (attempt_.state != State::kRunning || !attempt_.alive.contains(rank)) return {};
  auto& stay = attempt_.stays[rank];
  const bool is_same = is_stopped(stay.state) == is_stopped(state) && is_in_kernel(stay.state) == is_in_kernel(state);
  if (!is_same || stay.since == Time()) stay = {.since = now};
  stay.state = state;
  return {};
}

RankPolicy::Decision RankPolicy::on_cannot_run(int64_t rank, const std::string& program, int error_number, Time now) {
  attempt_.alive.erase(rank);
  const int code = error_number == ENOENT ? 127 : 126;  // the exit status that shells use
  auto decision =
      fail(code, fmt::format("cannot run '{}'{}: {}", program, on_host(rank), message_of(error_number)), now);
  if (decision.order == Order::kSignal) {  // the other ranks cannot run the program either
    attempt_.counts_stopped = false;
    attempt_.num_stopped = 0;
  }
  return decision;
}

RankPolicy::Decision RankPolicy::on_cannot_start(int64_t rank, int error_number, Time now) {
  if (rank < 0) {
    return fail(exit_status(ErrorCode::kUnavailable),
                fmt::format("cannot start the process that serves the ranks' TCPStore: {}", message_of(error_number)),
                now);
  }
  return fail(
      exit_status(ErrorCode::kUnavailable),
      fmt::format("cannot start rank {} of {}{}: {}; is a limit on processes reached (ulimit -u, or the cgroup's "
                  "pids.max)?",
                  rank, options_.num_ranks, on_host(rank), message_of(error_number)),
      now);
}

RankPolicy::Decision RankPolicy::give_up(int64_t rank, Time now) {
  attempt_.alive.erase(rank);  // it is not one of the other ranks that are stopped
  const bool has_restarts = rule_.may_restart();
  return fail(exit_status(ErrorCode::kUnavailable),
              fmt::format("{} has waited in the kernel for {}, where no signal reaches it "
                          "(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT){}",
                          describe(rank, attempt_.pids[rank]), format_duration(options_.kernel_sleep_limit),
                          has_restarts ? "; there is no restart, because it may hold a device" : ""),
              now);
}

RankPolicy::Decision RankPolicy::on_left_behind(int pid, const std::string& where) {
  left_behind_ += fmt::format("{}{}{}", left_behind_.empty() ? "" : ", ", pid, where);
  return {};
}

RankPolicy::Decision RankPolicy::on_guardian_lost(int pid, const std::set<int64_t>& ranks_of_node,
                                                  const std::string& where, Time now) {
  attempt_.again = Attempt::Again::kNo;
  const auto what = fmt::format("the process that starts and watches the ranks (pid {}{}) was killed", pid, where);
  if (attempt_.cause.empty()) {
    attempt_.exit_code = exit_status(ErrorCode::kUnavailable);
    attempt_.cause = what;
    attempt_.num_stopped = static_cast<int64_t>(attempt_.alive.size());
    attempt_.names_no_rank = true;
  } else {
    attempt_.cause += "; then " + what;
  }
  for (const auto rank : ranks_of_node) attempt_.num_killed += static_cast<int64_t>(attempt_.alive.erase(rank));
  if (attempt_.alive.empty()) {
    attempt_.state = State::kKilled;
    return {Order::kKill};
  }
  if (attempt_.state != State::kRunning) return {};
  attempt_.state = State::kStopping;
  attempt_.stopped_at = now;
  return {Order::kSignal, SIGTERM};
}

RankPolicy::Decision RankPolicy::on_store_ended(int pid, const std::string& where, int wait_status, Time now) {
  if (attempt_.state == State::kRunning) {
    attempt_.again = Attempt::Again::kCounted;
    attempt_.names_no_rank = true;
  }
  return fail(exit_status(ErrorCode::kUnavailable),
              fmt::format("the process that serves the ranks' TCPStore (pid {}{}) {}", pid, where,
                          describe_wait_status(wait_status)),
              now);
}

RankPolicy::Decision RankPolicy::on_node_lost(const std::string& why, const std::set<int64_t>& ranks_of_node,
                                              bool is_planned, Time now) {
  for (const auto rank : ranks_of_node) attempt_.alive.erase(rank);
  if (attempt_.state == State::kRunning) {
    attempt_.again = is_planned ? Attempt::Again::kFree : Attempt::Again::kCounted;
  } else if (is_planned && attempt_.again == Attempt::Again::kCounted) {
    attempt_.again = Attempt::Again::kFree;  // a rank failed earlier because it had lost its connection to this node
  }
  return fail(exit_status(ErrorCode::kUnavailable), why, now);
}

void RankPolicy::replace_cause(const std::string& before, const std::string& now) {
  if (attempt_.cause.starts_with(before)) attempt_.cause.replace(0, before.size(), now);
}

RankPolicy::Decision RankPolicy::on_host_lost(const std::string& why, const std::set<int64_t>& ranks_of_host,
                                              const std::string& spare, Time now) {
  if (attempt_.state != State::kRunning) return on_node_lost(why, ranks_of_host, false, now);
  for (const auto rank : ranks_of_host) attempt_.alive.erase(rank);
  const auto verdict =
      replace_rule_.judge(HostLoss{.num_ranks = static_cast<int64_t>(ranks_of_host.size()),
                                   .keep_state = std::ranges::includes(attempt_.keepers, ranks_of_host),
                                   .has_survivors = !attempt_.alive.empty(),
                                   .some_have_left = !attempt_.left.empty()});
  if (!verdict.replaces) {
    return on_node_lost(fmt::format("{}; its ranks are not replaced, because {}", why, verdict.why), ranks_of_host,
                        false, now);
  }
  attempt_.replaced = fmt::format("{}, and the spare host {} took its place", why, spare);
  attempt_.replaced_at = now;
  const auto last = replace_rule_.num_replaced();
  const auto first = last - static_cast<int64_t>(ranks_of_host.size()) + 1;
  for (const auto rank : ranks_of_host) {
    attempt_.stays.erase(rank);
    if (static_cast<size_t>(rank) < hosts_.size()) hosts_[static_cast<size_t>(rank)] = spare;
  }
  return {.notice = fmt::format("{}: {}; the spare host {} takes its place, and starts {} again, replacement{} of {}",
                                options_.name, why, spare, these_ranks({ranks_of_host.begin(), ranks_of_host.end()}),
                                first == last ? fmt::format(" {}", first) : fmt::format("s {} to {}", first, last),
                                options_.replacements),
          .first_replacement = first};
}

bool RankPolicy::take_back_replacements(const std::set<int64_t>& ranks) {
  if (attempt_.state != State::kRunning) return false;
  replace_rule_.take_back(static_cast<int64_t>(ranks.size()));
  return true;
}

RankPolicy::Decision RankPolicy::on_node_leaving(const std::string& why, int signal, Time now) {
  if (attempt_.state != State::kRunning) return {};
  attempt_.again = Attempt::Again::kFree;
  attempt_.exit_code = 128 + signal;
  attempt_.cause = why;
  return stop(signal, now);
}

RankPolicy::Decision RankPolicy::on_refused(int exit_code, const std::string& why, Time now) {
  return fail(exit_code, why, now);
}

/// A rank that has lost another one may end before that one. If the other was killed by SIGKILL, the status says so. If
/// the first one gave up because of the loss, the status is that of the other, too.
/// If that was stopped while it ended, it is that of an exception.
int RankPolicy::exit_code() const {
  const auto& failure = attempt_.failure;
  const auto given_up = exit_status(ErrorCode::kUnavailable);
  if (failure && !attempt_.facts.killed.empty() && attempt_.exit_code == shell_status(failure->wait_status) &&
      find_culprit(attempt_.facts).was_killed) {
    return shell_status(SIGKILL);
  }
  if (!failure || attempt_.exit_code != given_up || shell_status(failure->wait_status) != given_up) {
    return attempt_.exit_code;
  }
  const auto& facts = attempt_.facts;
  const auto first = root_cause(facts);
  const auto found = facts.wait_statuses.find(first);
  if (first == failure->rank || found == facts.wait_statuses.end() || found->second == 0) return attempt_.exit_code;
  if (WIFEXITED(found->second)) return shell_status(found->second);
  return facts.reports.contains(first) ? exit_status(ErrorCode::kInternal) : attempt_.exit_code;
}

RankPolicy::Decision RankPolicy::fail(int exit_code, std::string cause, Time now) {
  // While ranks are being stopped, a failure is a consequence of the first failure or of the launcher's signal.
  if (attempt_.state != State::kRunning) return {};
  attempt_.exit_code = exit_code;
  attempt_.cause = std::move(cause);
  return stop(SIGTERM, now);
}

RankPolicy::Decision RankPolicy::stop(int signal, Time now) {
  attempt_.state = State::kStopping;
  attempt_.num_stopped = static_cast<int64_t>(attempt_.alive.size());
  attempt_.stopped_at = now;
  return {Order::kSignal, signal};
}

std::optional<RankPolicy::Time> RankPolicy::next_time() const {
  if (attempt_.state == State::kStopping) {
    const auto end = attempt_.stopped_at + options_.grace;
    return attempt_.noticed ? end : std::min<Time>(end, attempt_.stopped_at + kNoticeAfter);
  }
  if (attempt_.state != State::kRunning || num_alive() == 0) return std::nullopt;
  std::optional<Time> next;
  const auto add = [&](Time time) { next = std::min(next.value_or(time), time); };
  if (!attempt_.left.empty() && !attempt_.has_said_left) add(attempt_.left.front().second + kLeftAfter);
  for (const auto& [rank, stay] : attempt_.stays) {
    const bool has_limit = is_in_kernel(stay.state) && options_.kernel_sleep_limit.count() > 0;
    if (has_limit) add(stay.since + options_.kernel_sleep_limit);
    if (is_told(stay)) add(stay.since + kStayAfter);
  }
  return next;
}

/// Whether the user is told of it after a while. Nobody waits for a single rank, which may be in a debugger.
bool RankPolicy::is_told(const Stay& stay) const {
  return !stay.is_said && (is_in_kernel(stay.state) || (is_stopped(stay.state) && options_.num_ranks > 1));
}

std::string RankPolicy::notice_of_left(Time now) {
  attempt_.has_said_left = true;
  return fmt::format("{}: {} ended with status 0{} {} ago, and {} still run{}", options_.name,
                     these_ranks(ranks_of(attempt_.left)), attempt_.left.size() == 1 ? "" : ", the first",
                     format_duration(now - attempt_.left.front().second),
                     these_ranks({attempt_.alive.begin(), attempt_.alive.end()}), num_alive() == 1 ? "s" : "");
}

std::string RankPolicy::notice_of_state(int64_t rank, Time now) {
  auto& stay = attempt_.stays.at(rank);
  stay.is_said = true;
  const int pid = attempt_.pids[rank];
  const auto what = is_in_kernel(stay.state)
                        ? std::string("has waited in the kernel")
                        : fmt::format("has been stopped{}", stay.state == 't' ? " by a debugger" : "");
  const auto advice = is_in_kernel(stay.state) ? std::string("a file system or a device may not answer; ")
                      : stay.state == 'T'      ? fmt::format("`kill -CONT {}` continues it; ", pid)
                                               : std::string();
  return fmt::format("{}: {} {} for {}{}; {}`yoke stack` shows where the ranks are", options_.name, describe(rank, pid),
                     what, format_duration(now - stay.since), num_alive() > 1 ? ", and others may wait for it" : "",
                     advice);
}

RankPolicy::Decision RankPolicy::on_time(Time now) {
  if (attempt_.state == State::kRunning && num_alive() > 0) {
    for (const auto& [rank, stay] : attempt_.stays) {
      const bool has_limit = is_in_kernel(stay.state) && options_.kernel_sleep_limit.count() > 0;
      if (has_limit && now >= stay.since + options_.kernel_sleep_limit) return give_up(rank, now);
    }
    for (const auto& [rank, stay] : attempt_.stays) {
      if (is_told(stay) && now >= stay.since + kStayAfter) return {Order::kNone, 0, notice_of_state(rank, now)};
    }
    return {Order::kNone, 0, notice_of_left(now)};
  }
  if (attempt_.state != State::kStopping) return {};
  const auto left = attempt_.stopped_at + options_.grace - now;
  if (left.count() > 0) {
    attempt_.noticed = true;
    auto facts = attempt_.facts;
    facts.num_running = num_alive();
    return {Order::kNone, 0,
            fmt::format("{}: {}; waiting up to {} for {} to stop; Ctrl-C kills at once", options_.name,
                        describe_cause(attempt_.failure ? find_culprit(facts) : Culprit()), format_duration(left),
                        describe_running())};
  }
  attempt_.state = State::kKilled;
  attempt_.grace_is_over = true;
  attempt_.num_killed += static_cast<int64_t>(attempt_.alive.size());
  return {Order::kKill};
}

std::string RankPolicy::describe_running() const {
  const auto& alive = attempt_.alive;
  if (alive.empty()) return "processes that the ranks started";
  const auto pid = attempt_.pids.find(*alive.begin());
  if (alive.size() > 1 || pid == attempt_.pids.end()) return these_ranks({alive.begin(), alive.end()});
  return describe(pid->first, pid->second);
}

bool RankPolicy::will_begin_again() const {
  if (is_told_to_end_ || was_interrupted_) return false;
  switch (attempt_.again) {
    case Attempt::Again::kNo: return false;
    case Attempt::Again::kCounted: return rule_.may_restart();
    case Attempt::Again::kFree: return true;
  }
  return false;
}

void RankPolicy::on_keeps(int64_t rank, bool keeps) {
  if (keeps) {
    attempt_.keepers.insert(rank);
  } else {
    attempt_.keepers.erase(rank);
  }
}

void RankPolicy::on_report(int64_t rank, const RankReport& report) {
  if (report.num_steps) attempt_.steps[rank] = *report.num_steps;
  auto& facts = attempt_.facts;
  if (report.error) {
    facts.reports.insert_or_assign(rank, *report.error);
  } else if (!report.last_line.empty()) {
    facts.last_lines[rank] = report.last_line;
  }
  if (!report.log.empty()) facts.logs[rank] = report.log;
}

void RankPolicy::on_early_report(int64_t rank, const ErrorReport& report) {
  // Another process may be taking the place of that rank, and then this is no failure.
  if (attempt_.state != State::kRunning) attempt_.facts.reports.insert_or_assign(rank, report);
}

std::optional<RankPolicy::Restart> RankPolicy::begin_again() {
  if (!will_begin_again()) return std::nullopt;
  Restart restart;
  auto how = std::string("; starting all ranks again");
  if (attempt_.again == Attempt::Again::kCounted) {
    FailedAttempt failed{.steps = attempt_.steps};
    if (attempt_.failure) failed.rank = attempt_.failure->rank, failed.wait_status = attempt_.failure->wait_status;
    const auto verdict = rule_.judge(failed);
    if (!verdict.restarts) {
      attempt_.no_restart = verdict.why;
      return std::nullopt;
    }
    restart.delay = verdict.delay;
    if (verdict.delay.count() > 0) how += fmt::format(" in {}", format_duration(verdict.delay));
    how += ", " + rule_.describe_restart();
    if (!verdict.why.empty()) how += ": " + verdict.why;
  }
  ++num_starts_;
  restart.notice = reason() + how;
  auto cause = std::move(attempt_.cause);
  attempt_ = {};
  attempt_.cause_before = std::move(cause);
  left_behind_.clear();  // the notice names these processes
  return restart;
}

/// What ranks have caught that ended with status 0. They have not made the whole training, perhaps.
std::string RankPolicy::describe_caught() const {
  const auto& facts = attempt_.facts;
  std::vector<int64_t> ranks;
  for (const auto& [rank, report] : facts.reports) {
    const auto status = facts.wait_statuses.find(rank);
    if (status != facts.wait_statuses.end() && status->second == 0) ranks.push_back(rank);
  }
  if (ranks.empty()) return "";
  const auto first = *std::ranges::min_element(ranks, {}, [&](int64_t rank) { return facts.reports.at(rank).time; });
  const bool is_one = ranks.size() == 1;
  return fmt::format(
      "{}: {} ended with status 0, but {} caught an error, so the training may be incomplete; rank {}: {}",
      options_.name, these_ranks(ranks), is_one ? "its program has" : "their programs have", first,
      fit(printable(facts.reports.at(first).message), kMaxCaughtColumns));
}

std::string RankPolicy::describe_cause(const Culprit& culprit) const {
  if (culprit.what.empty()) return attempt_.cause;
  const auto first = describe(culprit) + "; then ";
  if (culprit.ranks != std::vector{attempt_.failure->rank}) return first + attempt_.cause;
  // It is named once.
  const auto name = describe(attempt_.failure->rank, attempt_.failure->pid);
  if (attempt_.cause.starts_with(describe(culprit))) return attempt_.cause;
  return first + (attempt_.cause.starts_with(name) ? "it" + attempt_.cause.substr(name.size()) : attempt_.cause);
}

std::string RankPolicy::reason() const {
  std::string line;
  if (attempt_.cause.empty()) line = describe_caught();
  if (!attempt_.cause.empty()) {
    const auto culprit = attempt_.failure ? find_culprit(attempt_.facts) : Culprit();
    line = fmt::format("{}: {}", options_.name, describe_cause(culprit));
    const auto left = ranks_of(attempt_.left);
    if (!left.empty() && attempt_.num_stopped > 0 && culprit.ranks != std::vector{left.front()}) {
      line += fmt::format(" ({} had ended with status 0, {}{} before)", these_ranks(left),
                          left.size() == 1 ? "" : "the first ",
                          format_duration(attempt_.stopped_at - attempt_.left.front().second));
    }
    if (attempt_.num_stopped > 0) {
      const bool are_all = by_signal_ || attempt_.names_no_rank;
      line += are_all                     ? fmt::format("; stopped {}", counted(attempt_.num_stopped, "rank"))
              : attempt_.num_stopped == 1 ? "; stopped the other rank"
                                          : fmt::format("; stopped the {} other ranks", attempt_.num_stopped);
    }
    if (attempt_.num_killed > 0) {
      line += attempt_.num_stopped == 1 ? ", by SIGKILL" : fmt::format(", {} of them by SIGKILL", attempt_.num_killed);
      if (attempt_.grace_is_over) line += fmt::format(" after {}", format_duration(options_.grace));
    }
  }
  if (!left_behind_.empty()) {
    line += fmt::format(
        "{}processes are left behind (pid {}): they are blocked in a call of the kernel; SIGKILL was sent and ends "
        "them when that call returns",
        line.empty() ? options_.name + ": " : "; ", left_behind_);
  }
  if (!attempt_.no_restart.empty()) line += "; " + attempt_.no_restart;
  return line;
}

}  // namespace yoke::launch
