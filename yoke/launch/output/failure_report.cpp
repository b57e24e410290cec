#include "yoke/launch/output/failure_report.h"

#include <fmt/format.h>

#include "yoke/base/text.h"

namespace yoke::launch {

int64_t root_cause(const FailureFacts& facts) {
  auto first = facts.reports.find(facts.first_exited);
  for (auto it = facts.reports.begin(); it != facts.reports.end(); ++it) {
    if (first == facts.reports.end() || it->second.time < first->second.time) first = it;
  }
  return first == facts.reports.end() ? facts.first_exited : first->first;
}

std::vector<std::string> describe_failure(const std::string& name, const FailedRank& failed) {
  std::vector<std::string> lines;
  if (failed.report) {
    lines.push_back(fmt::format("{}: rank {} failed: {}", name, failed.rank, printable(failed.report->message)));
  }
  if (!failed.last_lines.empty()) {
    lines.push_back(fmt::format("{}: the last lines of rank {}:", name, failed.rank));
    for (const auto& line : failed.last_lines) lines.push_back("  " + printable(line));
  }
  if (!failed.log.empty())
    lines.push_back(fmt::format("{}: the log of rank {} is {}", name, failed.rank, printable(failed.log)));
  return lines;
}

}  // namespace yoke::launch
