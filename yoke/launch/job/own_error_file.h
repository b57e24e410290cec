// yoke/launch/job/own_error_file.h -- why a job failed, for whoever launched the launcher: its TORCHELASTIC_ERROR_FILE.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Writes the file that TORCHELASTIC_ERROR_FILE of the launcher's own environment names, if it names one: `failed`, or
/// `reason` where no rank failed or the one that did left no report. A file that cannot be written is only worth a
/// warning.
void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn);

}  // namespace yoke::launch
