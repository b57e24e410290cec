// yoke/slurm/job/planned_job.h -- decides the script of a job for the cluster of this host. Finds what sbatch takes,
// although it makes the job fail without a word: a program that does not exist, an output that cannot be written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/site/find.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm {

/// Parses "NAME=VALUE". Errors  kInvalidArgument. Pure.
std::pair<std::string, std::string> parse_variable(const std::string& assignment);

/// Looks whether the program of a job exists in the folder where the job would run. If it may exist on the nodes only,
/// that is a warning, which is returned. Errors  kNotFound, kInvalidArgument: it is not, or cannot be executed, and
/// what to give instead.
std::vector<std::string> check_program_here(const Request& request, const Environment& environment);

/// Where the job will run.
struct JobPlace {
  std::string site;             ///< By name or file; empty: found by the cluster's name.
  std::string version;          ///< Of Slurm, "23.11"; empty: that of the cluster here.
  std::filesystem::path share;  ///< The folder of the installation that has the sites.
};
struct PlannedJob {
  FoundSite site;
  ScriptPlan plan;
  std::string script;
  std::vector<std::string> notes;  ///< About the choice of the site.
};
/// Chooses the site and decides the script.
/// Errors  those of choose_site_here() and plan_script(); kInvalidArgument: a value has a wrong form, or the program is
/// a batch script.
PlannedJob plan_job(Request request, const JobPlace& place, const Environment& environment);

/// The value of an option in the script: "slurm-%j.out" for "--output". Empty if it is not there. Pure.
std::string directive_of(const ScriptPlan& plan, std::string_view option);

/// A job whose output cannot be written fails after all the time that it has waited. It is submitted in the working
/// folder. Errors  kInvalidArgument: the outputs of the script are so, as far as it can be seen from here; as errno
/// says.
void check_outputs(const ScriptPlan& plan, const std::optional<Version>& version);

/// Errors  kInvalidArgument: an index of `array` is larger than those of this cluster.
void check_array_size(const std::string& array, const Environment& environment);

}  // namespace yoke::slurm
