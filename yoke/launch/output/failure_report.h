// yoke/launch/output/failure_report.h -- what the launcher prints about a failure besides its one-line reason.
// Pure, but for leave_error_file().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/contract/error_file.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// What is known about the failures in one attempt.
struct FailureFacts {
  int64_t first_exited = 0;  ///< The rank that failed first, as far as the launcher saw.
  /// When the launcher saw the first failure.
  std::optional<std::chrono::system_clock::time_point> first_failure_at = {};
  std::map<int64_t, ErrorReport> reports;  ///< By rank; only for ranks that wrote an error file.
  std::map<int64_t, std::string> logs;     ///< By rank: the file with its standard error, if it has one.
  std::map<int64_t, int> wait_statuses;    ///< By rank; only for ranks that ended.
};

/// Returns the rank that failed first: the one that ended first, unless the error file of another has an earlier time.
/// Times are compared in whole seconds, as error files have them. The other ranks usually fail because of this rank,
/// but may end before it. A rank that was killed has no error file, and those that lost it have. So a report of a lost
/// connection is the cause only of the rank that ended first, and if no rank has written an error of its own by the
/// second after it.
int64_t root_cause(const FailureFacts& facts);

/// The rank that failed first, with what the launcher prints about it.
struct FailedRank {
  int64_t rank = 0;
  int wait_status = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< The rank's last lines, if they have scrolled off the screen; may be empty.
  std::string log;                      ///< The rank's log file; may be empty.
};

/// Returns the rank that failed first, without its last lines.
FailedRank failed_rank(const FailureFacts& facts);

/// Returns lines for the user, without line feeds; nothing if nothing is known. Text of ranks is made printable.
std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed);

/// The report that the launcher of a failed job passes on to the launcher that started it.
struct HandedOn {
  ErrorReport report;
  int error_code =
      0;  ///< Exit code of the process that failed, or minus the number of the signal that ended it; 0 if unknown.
};
/// Returns the failed rank's own report, as torchrun does. If it has none, the report is made from `reason`, the line
/// that the user sees. `failed`: null if no rank caused the failure.
HandedOn hand_on(const FailedRank* failed, const std::string& reason, std::chrono::system_clock::time_point now);

/// Writes the file that TORCHELASTIC_ERROR_FILE names, for the program that started the launcher, if the variable is in
/// the launcher's own environment. The content is the report of the rank `failed`, or `reason` if no rank failed or
/// that rank left no report. If the file cannot be written, only calls `warn`.
void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn);

}  // namespace yoke::launch
