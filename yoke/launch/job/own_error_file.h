// yoke/launch/job/own_error_file.h -- writes the reason of the job's failure into the file that TORCHELASTIC_ERROR_FILE
// names, for the program that started the launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Writes the file that TORCHELASTIC_ERROR_FILE names, if the variable is in the launcher's own environment. The
/// content is the report of the rank `failed`, or `reason` if no rank failed or that rank left no report. If the file
/// cannot be written, only calls `warn`.
void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn);

}  // namespace yoke::launch
