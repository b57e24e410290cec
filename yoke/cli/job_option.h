// yoke/cli/job_option.h -- the argument JOB of the commands about running jobs.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/launch/job/job_client.h"

namespace CLI {
class App;
}

namespace yoke::cli {

/// [JOB] of `command`. `name` must outlive the parsing.
void add_job_option(CLI::App& command, std::string& name);

/// A job and a conversation with its launcher.
struct OpenJob {
  launch::Job job;
  launch::JobConnection connection;
};

/// The job that `name` means, as launch::choose_job has it.
/// Errors  kNotFound, kInvalidArgument: none, or several. kTimeout: its launcher does not answer.
OpenJob open_job(const std::string& name);

/// With the reason, as far as /proc knows it.
Error does_not_answer(int64_t launcher);

/// "0-6,8". REQUIRES: in ascending order.
std::string join_ranks(const std::vector<int64_t>& ranks);

}  // namespace yoke::cli
