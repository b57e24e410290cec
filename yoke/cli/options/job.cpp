#include "yoke/cli/options/job.h"

#include <CLI/App.hpp>

namespace yoke::cli {

void add_job_option(CLI::App& command, std::string& name) {
  command
      .add_option("JOB", name,
                  "Its number in `yoke jobs` (the PID of `yoke run`), or its run id (--rdzv-id); "
                  "not needed where one job runs")
      ->type_name("");
}

}  // namespace yoke::cli
