#include "yoke/launch/output/failure_report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <string_view>

#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

/// The message of a rank may have up to 1 MiB, so it is cut.
constexpr int64_t kMaxMessageColumns = 4000;

/// Whether the line belongs to the C++ stack of a libtorch error. Such lines stay in the log; dozens of them would hide
/// the message.
bool is_frame(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("Exception raised from ");
}

}  // namespace

FailedRank failed_rank(const FailureFacts& facts) {
  FailedRank failed{.rank = rank_to_show(facts)};
  if (const auto it = facts.reports.find(failed.rank); it != facts.reports.end()) failed.report = it->second;
  if (const auto it = facts.last_lines.find(failed.rank); it != facts.last_lines.end()) {
    failed.last_lines = {it->second};
  }
  if (const auto it = facts.logs.find(failed.rank); it != facts.logs.end()) failed.log = it->second;
  if (const auto it = facts.wait_statuses.find(failed.rank); it != facts.wait_statuses.end()) {
    failed.wait_status = it->second;
  }
  return failed;
}

HandedOn hand_on(const FailedRank* failed, const std::string& reason, std::chrono::system_clock::time_point now) {
  HandedOn result;
  if (failed != nullptr) {
    const int status = failed->wait_status;
    result.error_code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (failed != nullptr && failed->report) {
    result.report = *failed->report;
  } else {
    result.report = {.message = reason, .traceback = "", .time = now};
  }
  return result;
}

std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed) {
  std::vector<std::string> lines;
  if (failed.report) {
    lines.push_back(fmt::format("{}: rank {} failed: {}", name, failed.rank,
                                fit(printable(failed.report->message), kMaxMessageColumns)));
  }
  std::vector<std::string> last_lines;
  for (const auto& line : failed.last_lines) {
    if (!is_frame(line)) last_lines.push_back("  " + printable(line));
  }
  if (!last_lines.empty()) {
    lines.push_back(fmt::format("{}: the last lines of rank {}:", name, failed.rank));
    lines.insert(lines.end(), last_lines.begin(), last_lines.end());
  }
  if (!failed.log.empty())
    lines.push_back(fmt::format("{}: the log of rank {} is {}", name, failed.rank, printable(failed.log)));
  return lines;
}

void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn) {
  const auto path = spec.environment.value_or("TORCHELASTIC_ERROR_FILE", "");
  if (path.empty()) return;
  const auto why = reason.empty() ? fmt::format("{}: output of the ranks is missing", spec.name) : reason;
  const auto handed_on = hand_on(failed ? &*failed : nullptr, why, std::chrono::system_clock::now());
  try {
    hand_on_error_report(path, handed_on.report, handed_on.error_code);
  } catch (const std::exception& error) {
    warn(fmt::format("TORCHELASTIC_ERROR_FILE cannot be written: {}", printable(error.what())));
  }
}

}  // namespace yoke::launch
