// yoke/cli/options/job.h -- the argument JOB of the commands about running jobs.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

/// Adds [JOB] to `command`. `name` must outlive the parsing.
void add_job_option(CLI::App& command, std::string& name);

}  // namespace yoke::cli
