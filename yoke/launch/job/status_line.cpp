#include "yoke/launch/job/status_line.h"

#include <fmt/format.h>

#include "yoke/base/format.h"

namespace yoke::launch {

std::string status_line(const JobStatus& status) {
  auto text = fmt::format("{}: {} of {} ranks up", status.name, status.num_up, status.num_ranks);
  if (!status.nodes.empty()) text += fmt::format(" on {} nodes", status.nodes);
  text += ", " + format_duration(status.elapsed);
  if (status.num_restarts > 0) text += ", " + describe_restart(status.num_restarts, status.restarts);
  return text;
}

bool has_changed(JobStatus before, const JobStatus& now) {
  before.elapsed = now.elapsed;
  return before != now;
}

}  // namespace yoke::launch
