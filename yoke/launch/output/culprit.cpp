#include "yoke/launch/output/culprit.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <set>
#include <string_view>

#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;

/// A rank that reads a file is in the kernel at many looks, so only a long wait is the cause of what others report.
constexpr std::chrono::seconds kLongInKernel{2};

/// Whether a rank failed because another one had gone or did not come, in the words of yoke, of its backend for Python
/// (dist/shared/engine_waits.cpp), of NCCL, Gloo or the ranks' TCPStore. Words of the system, such as "Broken pipe",
/// count only beside the name of Gloo or the store: a rank may have had a pipe of its own.
bool is_consequence(std::string_view text) {
  if (contains_any(
          text, {"lost its connection to another rank", "ncclRemoteError",
                 "remote process exited or there was a network error", "Watchdog caught collective operation timeout",
                 "is killed by signal: Terminated", "ranks were lost, and the job is told to end"})) {
    return true;
  }
  if (text.find(" of the group") != text.npos &&
      contains_any(text, {"Timed out waiting for rank", "Connection closed by peer: "})) {
    return true;
  }
  // A rank of yoke says so also if it does not know whom it has waited for.
  if (text.find("timed out after") != text.npos && contains_any(text, {": collective ", "the end of the job"})) {
    return true;
  }
  return contains_any(text, {"gloo/transport/", "DistNetworkError", "DistStoreError"}) &&
         contains_any(text, {"Connection closed by peer", "Connection reset by peer", "Broken pipe",
                             "Connection was likely closed", "Timed out waiting", "imed out after", "wait timeout"});
}

bool is_consequence(const ErrorReport& report) { return !report.cause.ranks.empty() || is_consequence(report.message); }

/// Whether a line is the last one of an uncaught exception of Python, such as "ValueError: sizes differ".
bool is_exception(std::string_view line) {
  const auto name = line.substr(0, line.find(':'));
  return name.size() < line.size() && name.find(' ') == name.npos &&
         (name.ends_with("Error") || name.ends_with("Exception"));
}

std::string_view last_line(const FailureFacts& facts, int64_t rank) {
  const auto found = facts.last_lines.find(rank);
  return found == facts.last_lines.end() ? std::string_view() : std::string_view(found->second);
}

bool failed_because_of_another(const FailureFacts& facts, int64_t rank) {
  const auto report = facts.reports.find(rank);
  return report != facts.reports.end() ? is_consequence(report->second) : is_consequence(last_line(facts, rank));
}

/// Whether the report of a rank says that ranks differ, or repeats the error of another one. That is certain.
bool is_certain(const FailureCause& cause) {
  return !cause.ranks.empty() && cause.kind == FailureCause::Kind::kDiffers;
}

bool is_report_certain(const FailureFacts& facts, int64_t rank) {
  const auto report = facts.reports.find(rank);
  return report != facts.reports.end() && is_certain(report->second.cause);
}

/// Whether a rank wrote its report after it had been continued, to be ended.
bool was_continued(const FailureFacts& facts, int64_t rank, const ErrorReport& report) {
  const auto found = facts.states.find(rank);
  if (found == facts.states.end() || (found->second.state != 'T' && found->second.state != 't')) return false;
  return !facts.first_failure_at || report.time >= std::chrono::floor<std::chrono::seconds>(*facts.first_failure_at);
}

/// Whether a rank that another one names had ended by itself before the launcher told it to. It may have written its
/// memory for so long that others failed first.
bool ended_by_itself(const FailureFacts& facts, int64_t rank, FailureCause::Kind kind) {
  const auto found = facts.wait_statuses.find(rank);
  if (found == facts.wait_statuses.end() || found->second == 0 || kind == FailureCause::Kind::kDiffers) return false;
  const int signal = WIFSIGNALED(found->second) ? WTERMSIG(found->second) : 0;
  if (kind == FailureCause::Kind::kEnded) return signal != SIGTERM;
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
}

std::string for_time(milliseconds time) {
  return time >= std::chrono::seconds(1) ? fmt::format(" for {}", format_duration(time)) : "";
}

/// Why others wait for a rank in vain.
struct Obstacle {
  std::string what;
  milliseconds lasts{0};
};

/// Returns nullopt if no more is known than that the rank did not come. `named`: how another rank names this one.
std::optional<Obstacle> obstacle(const FailureFacts& facts, int64_t rank, std::optional<FailureCause::Kind> named) {
  if (named && ended_by_itself(facts, rank, *named)) {
    return Obstacle{describe_wait_status(facts.wait_statuses.at(rank))};
  }
  if (const auto found = facts.left.find(rank); found != facts.left.end()) {
    return Obstacle{fmt::format("had ended with status 0 too early, {} before", format_duration(found->second)),
                    found->second};
  }
  const auto found = facts.states.find(rank);
  // A rank that differs, for certain, may be in the kernel for a moment.
  if (found == facts.states.end() || named == FailureCause::Kind::kDiffers) return std::nullopt;
  const auto& [state, lasts] = found->second;
  if (state == 't') return Obstacle{fmt::format("had been stopped by a debugger{}", for_time(lasts)), lasts};
  if (state == 'T') return Obstacle{fmt::format("had been stopped{} (SIGSTOP, Ctrl-Z)", for_time(lasts)), lasts};
  if (state != 'D' || lasts < kLongInKernel) return std::nullopt;
  return Obstacle{
      fmt::format("had waited in the kernel{}, as for a file system or a device that does not answer", for_time(lasts)),
      lasts};
}

/// The cause that the report of `rank` names, followed from rank to rank; empty if there is none.
FailureCause named_cause(const FailureFacts& facts, int64_t rank) {
  FailureCause cause;
  std::set<int64_t> seen;
  while (seen.insert(rank).second) {
    const auto report = facts.reports.find(rank);
    if (report == facts.reports.end() || report->second.cause.ranks.empty()) return cause;
    // Of ranks that name each other, as on both sides of a network that is cut, the one that failed is told anyway.
    if (!cause.ranks.empty() && seen.contains(report->second.cause.ranks.front())) return cause;
    cause = report->second.cause;
    rank = cause.ranks.front();
  }
  return cause;
}

/// The same, of the rank that failed first; if that names none, of another one.
FailureCause first_named_cause(const FailureFacts& facts) {
  auto cause = named_cause(facts, facts.first_exited);
  for (const auto& [rank, _] : facts.reports) {
    if (cause.ranks.empty()) cause = named_cause(facts, rank);
  }
  return cause;
}

/// A rank that was being ended by SIGKILL when others failed because of that. If the kernel did it for want of memory,
/// that is certain; otherwise somebody may have lost patience with a rank that does not end.
std::optional<Culprit> killed_before(const FailureFacts& facts, const FailureCause& cause, bool has_other_error) {
  if (is_certain(cause)) return std::nullopt;
  std::optional<Culprit> found;
  for (const auto& [rank, why] : facts.killed) {
    const bool is_named = std::ranges::find(cause.ranks, rank) != cause.ranks.end();
    const bool is_lost = cause.ranks.empty() || (is_named && cause.kind == FailureCause::Kind::kEnded);
    if (why.empty() && (!is_lost || has_other_error || found)) continue;
    found = Culprit{.ranks = {rank}, .what = describe_wait_status(SIGKILL) + why, .was_killed = true};
    if (!why.empty()) return found;
  }
  return found;
}

/// If all ranks but one say that they waited in vain, that one; otherwise none. They do not know whom they waited for,
/// as with the backends of Python.
FailureCause only_one_that_did_not_wait(const FailureFacts& facts) {
  FailureCause cause{.ranks = {}, .what = "did not come where all others waited"};
  for (const auto& [rank, status] : facts.wait_statuses) {
    if (!failed_because_of_another(facts, rank)) cause.ranks.push_back(rank);
  }
  const bool is_clear = cause.ranks.size() == 1 && facts.wait_statuses.size() > 2 && facts.num_running == 0;
  return is_clear ? cause : FailureCause();
}

/// The text of the error with which a rank has failed, without its own name; empty if that is not known, or if it
/// failed because of another rank. A rank that ended with status 0 has not failed.
std::string own_error(const FailureFacts& facts, int64_t rank) {
  const auto status = facts.wait_statuses.find(rank);
  if (status != facts.wait_statuses.end() && status->second == 0) return "";
  const auto report = facts.reports.find(rank);
  const bool has_report = report != facts.reports.end();
  if (has_report && (is_consequence(report->second) || was_continued(facts, rank, report->second))) return "";
  std::string text(has_report ? report->second.message : last_line(facts, rank));
  if (!has_report && (!is_exception(text) || is_consequence(text))) return "";
  const auto name = fmt::format("rank {}: ", rank);
  if (const auto found = text.find(name); found != text.npos) text.erase(found, name.size());
  return text;
}

/// The ranks that have failed with the same error as `first`, and that one; empty if there is no other one. Then none
/// of them is to blame alone: a file is missing, or an option is wrong.
std::vector<int64_t> failed_alike(const FailureFacts& facts, int64_t first) {
  const auto error = own_error(facts, first);
  if (error.empty()) return {};
  std::set<int64_t> alike;
  for (const auto& [rank, _] : facts.reports) alike.insert(rank);
  for (const auto& [rank, _] : facts.last_lines) alike.insert(rank);
  std::erase_if(alike, [&](int64_t rank) { return own_error(facts, rank) != error; });
  return alike.size() < 2 ? std::vector<int64_t>() : std::vector(alike.begin(), alike.end());
}

std::string with_activity(const FailureFacts& facts, const FailureCause& cause) {
  const auto found = facts.states.find(cause.ranks.front());
  if (cause.kind != FailureCause::Kind::kAbsent || found == facts.states.end() || cause.ranks.size() > 1)
    return cause.what;
  if (found->second.state == 'R') return cause.what + "; it was computing";
  if (found->second.state == 'S') return cause.what + "; it was waiting for something else";
  return cause.what;
}

}  // namespace

int64_t root_cause(const FailureFacts& facts) {
  int64_t first = facts.first_exited;
  const auto of_first = facts.reports.find(first);
  auto time = of_first != facts.reports.end() ? std::optional(of_first->second.time) : facts.first_failure_at;
  if (time) time = std::chrono::floor<std::chrono::seconds>(*time);
  // A rank that loses its connection may end before the one that closed it, which writes its own error in these
  // moments.
  const bool is_echo = failed_because_of_another(facts, first);
  if (time && is_echo && !is_report_certain(facts, first)) *time += std::chrono::seconds(2);
  for (const auto& [rank, report] : facts.reports) {
    if (is_consequence(report) || (time && report.time >= *time) || was_continued(facts, rank, report)) continue;
    first = rank;
    time = report.time;
  }
  if (first != facts.first_exited || !is_echo) return first;
  for (const auto& [rank, line] : facts.last_lines) {
    if (!facts.reports.contains(rank) && is_exception(line) && !is_consequence(line)) return rank;
  }
  return first;
}

Culprit find_culprit(const FailureFacts& facts) {
  const auto first = root_cause(facts);
  const bool is_echo = failed_because_of_another(facts, facts.first_exited);
  auto cause = is_echo ? first_named_cause(facts) : FailureCause();
  if (is_echo) {
    if (auto killed = killed_before(facts, cause, first != facts.first_exited)) return *std::move(killed);
  }
  if (auto alike = failed_alike(facts, first); !alike.empty()) {
    const auto num_ranks = std::max(alike.size(), facts.wait_statuses.size() + static_cast<size_t>(facts.num_running));
    return {std::move(alike), fmt::format("of {} failed with the same error", num_ranks)};
  }
  if (first != facts.first_exited) return {{first}, "failed first"};
  if (!is_echo) return {{first}, ""};
  for (const auto rank : cause.ranks) {
    if (auto known = obstacle(facts, rank, cause.kind)) return {{rank}, std::move(known->what)};
  }
  // A rank that waits for another one, too, did nothing wrong: the one that it waits for may be in a group of theirs.
  const auto is_computing = [&](int64_t rank) {
    const auto found = facts.states.find(rank);
    return found != facts.states.end() && found->second.state == 'R';
  };
  if (cause.ranks.empty() ||
      (cause.kind == FailureCause::Kind::kAbsent && std::ranges::none_of(cause.ranks, is_computing))) {
    std::set<int64_t> others;
    for (const auto& [rank, _] : facts.left) others.insert(rank);
    for (const auto& [rank, _] : facts.states) others.insert(rank);
    Culprit earliest;
    milliseconds longest(-1);
    for (const auto rank : others) {
      const auto known = obstacle(facts, rank, std::nullopt);
      if (known && known->lasts > longest) earliest = {{rank}, known->what}, longest = known->lasts;
    }
    if (!earliest.ranks.empty()) return earliest;
  }
  if (cause.ranks.empty()) cause = only_one_that_did_not_wait(facts);
  if (!cause.ranks.empty()) return {cause.ranks, with_activity(facts, cause)};
  return {{first}, ""};
}

int64_t rank_to_show(const FailureFacts& facts) {
  const auto first = root_cause(facts);
  if (first != facts.first_exited || !is_report_certain(facts, first)) return first;
  const auto cause = first_named_cause(facts);
  if (!is_certain(cause) || cause.ranks.size() > 1) return first;
  const auto report = facts.reports.find(cause.ranks.front());
  const bool says_so =
      report != facts.reports.end() && (is_certain(report->second.cause) || !is_consequence(report->second));
  return says_so ? report->first : first;
}

}  // namespace yoke::launch
