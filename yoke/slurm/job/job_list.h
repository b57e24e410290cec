// yoke/slurm/job/job_list.h -- the jobs that wait and run now, where they are, and why the others wait.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct JobList {
  std::string user = {};  ///< Jobs of this user alone were asked for; empty: of all users.
  bool is_named = false;  ///< The user named jobs.
  std::vector<Job> jobs = {};
  std::vector<std::string> missing = {};  ///< The named ones that neither wait nor run.
};
/// `words` name jobs; without them, the list has the jobs of this user, or with `is_all` those of all users.
/// Errors  those of require_job_targets() and queued_jobs().
JobList list_jobs(const std::vector<std::string>& words, bool is_all, const Environment& environment);

nlohmann::ordered_json to_json(const JobList& list);
/// A table, and below it what each reason to wait means.
std::string to_text(const JobList& list, int64_t width);

}  // namespace yoke::slurm
