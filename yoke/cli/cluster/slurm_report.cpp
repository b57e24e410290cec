// `yoke slurm report`: say what jobs used of what they had, with advice.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/job_evidence.h"

namespace yoke::cli {
namespace {

struct SlurmReportArgs {
  std::vector<std::string> jobs;
  bool json = false;
};

int run_slurm_report(const SlurmReportArgs& args, Context& context) {
  std::vector<slurm::ReportTarget> targets;
  for (const auto& word : args.jobs) {
    std::ranges::move(slurm::report_targets(word, context.environment), std::back_inserter(targets));
  }
  std::optional<Error> unknown;  // one job of several does not keep the others from their reports
  auto reports = nlohmann::ordered_json::array(), arrays = reports;
  std::set<std::string> told;  // by 5-7, of which 5 may be an array and 6 one of its tasks
  bool is_first = true;
  const auto print = [&](const std::string& text) {
    context.out << (is_first ? "" : "\n") << text;
    is_first = false;
  };
  for (const auto& target : targets) {
    std::vector<slurm::TaskReport> tasks;
    std::vector<slurm::Evidence> found;
    try {
      found = evidence_of(target, context.environment);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound || targets.size() == 1) throw;
      teller(context)(Told::kNews, printable(error.what()));
      unknown = error;
      continue;
    }
    for (const auto& evidence : found) {
      auto report = make_report(evidence);
      if (target.is_of_interval && !told.insert(report.job.id).second) continue;
      auto advice = advise(report);
      tasks.push_back({std::move(report), std::move(advice)});
    }
    if (tasks.empty()) continue;
    const bool is_array = is_whole_array(target, tasks);
    if (is_array && args.json) arrays.push_back(to_json(make_array_report(tasks)));
    if (is_array && !args.json) print(to_text(make_array_report(tasks), table_width(context)));
    for (const auto& [report, advice] : tasks) {
      if (args.json) reports.push_back(to_json(report, advice));
      if (!args.json && !is_array) print(to_text(report, advice, table_width(context)));
    }
  }
  if (args.json) print_json({{"reports", reports}, {"arrays", arrays}}, context);
  return unknown ? exit_status(unknown->code()) : kExitOk;
}

}  // namespace

void add_slurm_report(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmReportArgs>(cmd, context, run_slurm_report);
  add_value(cmd, "JOB", args.jobs, "JOB|FILE", "Numbers of jobs, or their output files, as slurm-123.out")
      ->expected(1, -1)
      ->required();
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.footer(
      examples("  yoke slurm report 4121             a job that runs or has ended\n"
               "  yoke slurm report 4121_7 4130      a task of an array, and another job\n"
               "  yoke slurm report 4131             all tasks of an array: states, and the spread of what they used\n"
               "  yoke slurm report '4131_[1-3]'     these tasks of it, one by one\n"
               "  yoke slurm report 4121-4125        several jobs; so are 4121,4125\n"
               "  yoke slurm report logs/*.out       the jobs of these output files\n"
               "  yoke slurm report sweep/*/slurm.out    the tasks of a sweep of `yoke slurm array`\n"
               "  yoke slurm report --json 4121 | jq '.reports[].advice[].text'\n"
               "\n"
               "Figures come from the samples that `yoke run` and `yoke slurm sample` take in a job, or else\n"
               "from sacct. What neither knows is said.\n"
               "\n"
               "Exit status: 0; 66 if nobody knows a job, or if a file is not an output of the job in its name;\n"
               "75 if slurmctld or munge cannot be reached and there are no samples either."));
}

}  // namespace yoke::cli
