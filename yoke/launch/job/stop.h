// yoke/launch/job/stop.h -- ends a job that runs on this machine, and waits until it has ended.
#pragma once

#include <chrono>
#include <optional>

#include "yoke/base/tell.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::launch {

struct StopOptions {
  bool now = false;                                           ///< Kill the ranks, without the grace to save their work.
  std::optional<std::chrono::duration<double>> timeout = {};  ///< nullopt: wait until the job has ended.
  Tell tell = {};                                             ///< Gets which processes are waited for, as news.
};

/// Asks the launcher of `found` to end its job, and waits for the launcher's end. Returns at once if it has ended.
/// Errors  kTimeout: the launcher does not answer, or the job has not ended within the timeout.
void stop(const FoundJob& found, const StopOptions& options);

}  // namespace yoke::launch
