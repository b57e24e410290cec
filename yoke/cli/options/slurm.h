// yoke/cli/options/slurm.h -- the options by which `yoke slurm submit` and `script` describe a job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/site/find.h"

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

struct PlannedJob {
  slurm::FoundSite site;
  slurm::ScriptPlan plan;
  std::string script;
};

/// Looks whether the program of a job is here, where the job would run. If nodes alone may have it, that is a warning,
/// which is printed on standard error and returned.
/// Errors  kNotFound, kInvalidArgument: it is not, or cannot be executed, and what to give instead.
std::vector<std::string> check_program_here(const SlurmJobOptions& options, const Context& context);

/// Chooses the site, decides the script, and prints notes and warnings on standard error.
/// Errors  those of choose_site_here() and plan_script(); kInvalidArgument: --env or --slurm has a wrong form, or
/// the program is a batch script.
PlannedJob plan_job(const SlurmJobOptions& options, const Context& context);

}  // namespace yoke::cli
