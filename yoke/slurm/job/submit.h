// yoke/slurm/job/submit.h -- hands a batch script to sbatch.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::slurm {

/// slurmctld may wait for its disk or for plugins of the site when it takes a job.
inline constexpr std::chrono::seconds kSubmitTime{60};

struct Submission {
  std::string job_id;                 ///< "4711"
  std::string cluster;                ///< In a federation; else empty.
  std::vector<std::string> messages;  ///< What sbatch said besides, such as a site's hints.
};

/// The environment for sbatch. A job takes over the variables of its submitter, so those of an outer job or rank, which
/// would contradict the new ones, are left out; so are those by which sbatch waits for the job's end, prints more, or
/// submits something else or elsewhere. Pure.
Environment environment_for_job(Environment environment);

/// Without the variables SBATCH_*, which count more than the lines of a script.
Environment without_sbatch_variables(Environment environment);

/// Parses what `sbatch --parsable` printed. nullopt: it is no job id. Pure.
std::optional<Submission> parse_submission(const CommandOutput& output);

/// The error for a submission that sbatch refused, with what to give instead where that is known. Pure.
Error refusal_of(const CommandOutput& output);

/// Submits `script`, which sbatch reads from its standard input: no file is needed, and none is left if it refuses.
/// Errors  kFailedPrecondition: sbatch refused it, with its own words; kDataLoss: it printed no job id; others as
/// ask(). After kTimeout and kDataLoss the job may be in the queue.
Submission submit(const std::string& script, const Environment& environment,
                  const std::vector<std::string>& options = {});

/// Asks sbatch when and where the job would start: "Job 12 to start at ...". Errors  those of submit().
std::string test_submission(const std::string& script, const Environment& environment);

}  // namespace yoke::slurm
