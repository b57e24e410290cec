#include "yoke/cli/options/job.h"

#include "yoke/cli/options/value.h"

namespace yoke::cli {

void add_job_option(CLI::App& command, std::string& name) {
  add_value(command, "JOB", name, "",
            "Its number in `yoke jobs` (the PID of `yoke run`), or its run id (--rdzv-id); "
            "not needed where one job runs");
}

}  // namespace yoke::cli
