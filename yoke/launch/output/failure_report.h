// yoke/launch/output/failure_report.h -- what the user is shown of a failure beside its one-line reason. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/error_file.h"

namespace yoke::launch {

/// Of one attempt.
struct FailureFacts {
  int64_t first_exited = 0;                ///< The rank whose end was seen first.
  std::map<int64_t, ErrorReport> reports;  ///< Of the ranks that wrote an error file.
  std::map<int64_t, std::string> logs;     ///< What ranks wrote to standard error, where that is a file.
  std::map<int64_t, int> wait_statuses;    ///< Of the ranks that ended.
};

/// The rank that failed first: by the times in the error files, which are whole seconds, else the first that ended. For
/// the others mostly fail because of it, and may well end before it has.
int64_t root_cause(const FailureFacts& facts);

/// What is known of that rank.
struct FailedRank {
  int64_t rank = 0;
  int wait_status = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< Out of sight by now; may be empty.
  std::string log;                      ///< Its file, or empty.
};

/// The root cause; without its last lines.
FailedRank failed_rank(const FailureFacts& facts);

/// Lines without end of line; none when nothing is known. What ranks wrote is made printable.
std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed);

/// What a launcher hands on to its own launcher when its job fails.
struct HandedOn {
  ErrorReport report;
  int error_code = 0;  ///< Of the process that failed; minus the signal's number if a signal ended it; 0: unknown.
};
/// The rank's own report, as torchrun does. Where there is none, `reason`, the line that the user is shown. `failed`:
/// null where no rank failed first.
HandedOn hand_on(const FailedRank* failed, const std::string& reason, std::chrono::system_clock::time_point now);

}  // namespace yoke::launch
