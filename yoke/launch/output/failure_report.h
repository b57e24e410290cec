// yoke/launch/output/failure_report.h -- what the user is shown of a failure beside its one-line reason. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/error_file.h"

namespace yoke::launch {

struct FailureFacts {
  int64_t first_exited = 0;                ///< The rank whose end was seen first.
  std::map<int64_t, ErrorReport> reports;  ///< Of the ranks that wrote an error file.
};

/// The rank that failed first: by the times in the error files, which are whole seconds, else the first that ended. For
/// the others mostly fail because of it, and may well end before it has.
int64_t root_cause(const FailureFacts& facts);

/// What is known of that rank.
struct FailedRank {
  int64_t rank = 0;
  std::optional<ErrorReport> report;
  std::vector<std::string> last_lines;  ///< Out of sight by now; may be empty.
  std::string log;                      ///< Its file, or empty.
};

/// Lines without end of line; none when nothing is known. What ranks wrote is made printable.
std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed);

}  // namespace yoke::launch
