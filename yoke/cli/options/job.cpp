#include "yoke/cli/options/job.h"

#include <CLI/App.hpp>

#include "yoke/device/process/info.h"

namespace yoke::cli {

void add_job_option(CLI::App& command, std::string& name) {
  command
      .add_option("JOB", name,
                  "Its number in `yoke jobs` (the PID of `yoke run`), or its run id (--rdzv-id); "
                  "not needed where one job runs")
      ->type_name("");
}

Error does_not_answer(int64_t launcher) {
  const auto state = device::describe_process(launcher).state.value_or('?');
  if (state == 'T' || state == 't') {
    return {ErrorCode::kTimeout,
            "job {} does not answer: its `yoke run` is stopped (Ctrl-Z?); `kill -CONT {}` lets it go on", launcher,
            launcher};
  }
  return {ErrorCode::kTimeout,
          "job {} does not answer (its `yoke run` is in state {}); `kill -KILL {}` ends it with its ranks", launcher,
          state, launcher};
}

OpenJob open_job(const std::string& name) {
  const auto jobs = launch::find_jobs();
  const auto& found = launch::choose_job(jobs, name);
  auto connection =
      launch::JobConnection::open(found.address, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  if (!connection) throw Error(ErrorCode::kNotFound, "job {} has just ended", found.address.pid);
  auto job = found.job;
  const auto state = device::describe_process(found.address.pid).state.value_or('?');
  if (!job && state != 'T' && state != 't') {  // this is the job that is wanted, and its machine may be very busy
    connection->ask_job();
    job = connection->read_job(std::chrono::steady_clock::now() + std::chrono::seconds(10));
    if (job) job->pid = found.address.pid;
  }
  if (!job) throw does_not_answer(found.address.pid);
  return {std::move(*job), std::move(*connection)};
}

}  // namespace yoke::cli
