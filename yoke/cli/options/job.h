// yoke/cli/options/job.h -- the argument JOB of the commands about running jobs, and the connection to the chosen job.
#pragma once

#include <string>

#include "yoke/base/error.h"
#include "yoke/launch/job/job_client.h"

namespace CLI {
class App;
}

namespace yoke::cli {

/// Adds [JOB] to `command`. `name` must outlive the parsing.
void add_job_option(CLI::App& command, std::string& name);

/// A job and a connection to its launcher.
struct OpenJob {
  launch::Job job;
  launch::JobConnection connection;
};

/// Opens the job that launch::choose_job finds for `name`.
/// Errors  kNotFound: no job matches; kInvalidArgument: several jobs match; kTimeout: the launcher does not answer.
OpenJob open_job(const std::string& name);

/// Returns the error for a launcher that does not answer, with the reason if /proc shows one.
Error does_not_answer(int64_t launcher);

}  // namespace yoke::cli
