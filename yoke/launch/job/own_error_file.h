// yoke/launch/job/own_error_file.h -- tells the program that started the launcher why the job failed, in the file that
// TORCHELASTIC_ERROR_FILE names.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Writes the file that TORCHELASTIC_ERROR_FILE of the launcher's own environment names, if it is set: the report of
/// `failed`, or `reason` if no rank failed or it left no report. If the file cannot be written, it only warns.
void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn);

}  // namespace yoke::launch
