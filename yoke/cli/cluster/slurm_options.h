// yoke/cli/cluster/slurm_options.h -- the options by which `yoke slurm submit` and `script` describe a job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/slurm/job/planned_job.h"

namespace yoke::cli {

/// REQUIRES: lives as long as the command, since CLI11 keeps references to it.
struct SlurmJobOptions {
  slurm::Request request;
  std::string site, version, launcher = "auto";
  std::vector<std::string> variables;  ///< NAME=VALUE
};

void add_job_options(CLI::App& cmd, SlurmJobOptions& options);

/// What to say to users who give an option of sbatch that a command has in another form.
struct SbatchHabit {
  const char* names;    ///< "-n,--ntasks"
  const char* instead;  ///< "give -N and --ranks-per-node"
};
/// Adds options that help does not show, and that are refused with these words.
void add_habits(CLI::App& cmd, std::span<const SbatchHabit> habits);

/// slurm::check_program_here(), whose warnings are told and returned.
std::vector<std::string> check_program_here(const SlurmJobOptions& options, const Context& context);

/// slurm::plan_job(), whose notes and warnings are told.
slurm::PlannedJob plan_job(const SlurmJobOptions& options, const Context& context);

}  // namespace yoke::cli
