// yoke/slurm/check/report.h -- findings as text, JSON and SARIF, and scripts with fixes. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {

/// The findings of one file. `file` is "-" for standard input and empty for a command line.
struct FileFindings {
  std::string file;
  std::vector<Finding> findings;
};

/// "job.sh:3: error: ... [rule]", and the fix on a line of its own.
std::string to_text(const std::vector<FileFindings>& files);

/// {"findings": [{"file", "line", "rule", "severity", "message", "fix", "source", "slurm"}]}
nlohmann::ordered_json to_json(const std::vector<FileFindings>& files);

/// SARIF 2.1.0. Source  OASIS sarif-v2.1.0.
nlohmann::ordered_json to_sarif(const std::vector<FileFindings>& files, std::string_view version);

/// Whether there are errors or warnings.
bool has_problems(const std::vector<FileFindings>& files);

/// Applies all edits of the findings to `text`. Lines end with a line feed afterwards if a finding changes line ends.
std::string with_fixes(std::string_view text, const std::vector<Finding>& findings);

/// All rules, as docs/slurm-check.md lists them.
nlohmann::ordered_json rules_as_json();
/// What a rule says, why, and on what it rests.
std::string explain(const Rule& rule);

}  // namespace yoke::slurm::check
