// yoke/launch/output/failure_report.h -- what is shown of a failure besides its one-line reason. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/error_file.h"

namespace yoke::launch {

/// What is known of the failures in one attempt.
struct FailureFacts {
  int64_t first_exited = 0;                ///< The rank that was the first to end, as far as the launcher saw it.
  std::map<int64_t, ErrorReport> reports;  ///< By rank, of those that wrote an error file.
  std::map<int64_t, std::string> logs;     ///< By rank, the files with standard error, if there are any.
  std::map<int64_t, int> wait_statuses;    ///< By rank, of those that ended.
};

/// The rank that failed first, according to the times in the error files (whole seconds), or else the one that ended
/// first. The others usually fail because of it, and may end before it.
int64_t root_cause(const FailureFacts& facts);

/// What is shown of that rank.
struct FailedRank {
  int64_t rank = 0;
  int wait_status = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< That have scrolled out of sight; may be empty.
  std::string log;                      ///< Its log file; may be empty.
};

/// The root cause, without the last lines of the rank.
FailedRank failed_rank(const FailureFacts& facts);

/// Lines for the user, without line ends; empty if nothing is known. Text of ranks is made printable.
std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed);

/// What a launcher passes on to its own launcher if the job fails.
struct HandedOn {
  ErrorReport report;
  int error_code =
      0;  ///< Exit code of the process that failed, or minus the number of the signal that ended it; 0: unknown.
};
/// The report of the rank itself, as in torchrun; if there is none, `reason`, the line that the user is shown.
/// `failed`: null if it is not a rank that failed first.
HandedOn hand_on(const FailedRank* failed, const std::string& reason, std::chrono::system_clock::time_point now);

}  // namespace yoke::launch
