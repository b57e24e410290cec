// `yoke slurm array --collect`: the results of a sweep.
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/curve/recording.h"
#include "yoke/slurm/job/sweep_results.h"

namespace yoke::cli {
namespace {

/// The last value of each metric that the task wrote.
std::vector<std::pair<std::string, double>> last_metrics(const std::filesystem::path& folder) {
  std::vector<std::pair<std::string, double>> metrics;
  const auto take = [&](const std::filesystem::path& run) {
    for (const auto& curve : curve::read_run(run).curves) {
      if (!curve.values.empty()) metrics.emplace_back(curve.metric, curve.values.back());
    }
  };
  try {
    take(folder);
  } catch (const Error&) {
    try {
      take(curve::newest_run(folder));
    } catch (const Error&) {  // no metrics
    }
  }
  return metrics;
}

}  // namespace

int collect_sweep(const CollectOptions& options, Context& context) {
  slurm::SweepResults results{.folder = slurm::open_sweep(options.sweep, context.environment)};
  results.states = slurm::sweep_states(results.folder, context.environment);
  for (size_t i = 0; i < results.folder.sweep.tasks.size(); ++i) {
    results.metrics.push_back(last_metrics(results.folder.of_task(i)));
  }
  if (options.json) {
    print_json(to_json(results), context);
  } else {
    const auto table = to_table(results, options.csv ? "" : "-");
    context.out << (options.csv ? to_csv(table) : to_text(table, table_width(context)));
  }
  tell_ends(results, teller(context));
  return exit_status_of(results);
}

}  // namespace yoke::cli
