// yoke/slurm/job/follow_logs.h -- shows what a job's batch script and its steps have printed, and follows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/slurm/job/job_file.h"

namespace yoke::slurm {

struct LogsRequest {
  JobTarget target;
  bool follows = false;              ///< Goes on until the job has ended; waits for it to start.
  std::optional<int64_t> num_lines;  ///< The last lines of each file alone; nullopt: all.
  /// slurmctld serves thousands of users: the pauses between questions grow from the first to the second length.
  std::chrono::milliseconds first_pause{500}, longest_pause{5000};
};

/// A line of a job. `prefix` says of which job and rank it is where there are several: "7_1 rank 3: ".
struct LogLine {
  std::string_view prefix, text;
  bool is_error = false;
};
/// Where the lines go.
struct LogPage {
  std::function<void(const LogLine& line)> print;
  std::function<bool()> flush;  ///< Is called after the lines that came together. false: nobody reads them any more.
};

/// Returns whether each file that should be there could be read; tells about the others.
/// Errors  kNotFound: there is no such job, or it has printed nothing yet; those of known_jobs().
bool show_logs(const LogsRequest& request, const Environment& environment, const LogPage& page, const Tell& tell);

}  // namespace yoke::slurm
