// yoke/launch/output/failure_report.h -- what the launcher prints about a failure besides its one-line reason.
// Pure, but for leave_error_file().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/contract/error_file.h"
#include "yoke/launch/output/culprit.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// The rank that the launcher prints more about: rank_to_show(). Its report may name another one (find_culprit()).
struct FailedRank {
  int64_t rank = 0;
  int wait_status = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< The rank's last lines, if they are not in sight; may be empty.
  std::string log;                      ///< The rank's log file; may be empty.
};

/// Returns it; if it has no report, with its last line.
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
