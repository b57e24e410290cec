// yoke/slurm/job/planned_job.h -- decides the script of a job for the cluster here, and looks whether its program is
// here.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/site/find.h"

namespace yoke::slurm {

/// Parses "NAME=VALUE". Errors  kInvalidArgument. Pure.
std::pair<std::string, std::string> parse_variable(const std::string& assignment);

/// Looks whether the program of a job is here, where the job would run. If nodes alone may have it, that is a warning,
/// which is returned. Errors  kNotFound, kInvalidArgument: it is not, or cannot be executed, and what to give instead.
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

}  // namespace yoke::slurm
