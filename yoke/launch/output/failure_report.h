// yoke/launch/output/failure_report.h -- what the launcher shows about a failure besides its one-line reason. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/error_file.h"

namespace yoke::launch {

/// The facts that are known about the failures in one attempt.
struct FailureFacts {
  int64_t first_exited = 0;                ///< The rank that was the first to end, as far as the launcher saw it.
  std::map<int64_t, ErrorReport> reports;  ///< By rank; only for ranks that wrote an error file.
  std::map<int64_t, std::string> logs;     ///< By rank: the file with its standard error, if it has one.
  std::map<int64_t, int> wait_statuses;    ///< By rank; only for ranks that ended.
};

/// The rank that failed first, according to the times in the error files (whole seconds), or else the one that ended
/// first. The other ranks usually fail because of that rank, and may end before it.
int64_t root_cause(const FailureFacts& facts);

/// The rank that failed first, with the facts that the launcher shows about it.
struct FailedRank {
  int64_t rank = 0;
  int wait_status = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< Its last lines, if they have scrolled off the screen; may be empty.
  std::string log;                      ///< Its log file; may be empty.
};

/// The rank that failed first, without its last lines.
FailedRank failed_rank(const FailureFacts& facts);

/// Lines for the user, without line ends; empty if nothing is known. Text of ranks is made printable.
std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed);

/// The report that a launcher whose job failed passes on to the launcher that started it.
struct HandedOn {
  ErrorReport report;
  int error_code =
      0;  ///< Exit code of the process that failed, or minus the number of the signal that ended it; 0 if unknown.
};
/// Hands on the report of the failed rank itself, as torchrun does. If there is none, the report is made from `reason`,
/// the line that the user is shown. `failed`: null if the job did not fail because of a rank.
HandedOn hand_on(const FailedRank* failed, const std::string& reason, std::chrono::system_clock::time_point now);

}  // namespace yoke::launch
