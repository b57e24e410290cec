// yoke/launch/job/status_line.h -- the line that the launcher shows at the bottom of a terminal. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "yoke/launch/plan/restart_limit.h"

namespace yoke::launch {

struct JobStatus {
  std::string name = "yoke run";
  int64_t num_up = 0, num_ranks = 0;
  std::string nodes;  ///< "2 of 2 to 4": 2 nodes have joined, and 2 to 4 are wanted. Empty for a job of one node.
  std::chrono::seconds elapsed{0};
  int64_t num_restarts = 0;
  RestartLimit restarts;

  bool operator==(const JobStatus&) const = default;
};

/// Returns text such as "yoke run: 7 of 8 ranks up, 1.5 h, restart 1 of 3".
std::string status_line(const JobStatus& status);

/// Whether more than the time has changed.
bool has_changed(JobStatus before, const JobStatus& now);

}  // namespace yoke::launch
