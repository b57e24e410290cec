// yoke/cli/options/job.h -- the argument JOB of the commands about running jobs.
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
/// Errors  kNotFound: there is none; kInvalidArgument: there are several; kTimeout: its launcher does not answer.
OpenJob open_job(const std::string& name);

/// The error for a launcher that does not answer, with the reason if /proc shows it.
Error does_not_answer(int64_t launcher);

}  // namespace yoke::cli
