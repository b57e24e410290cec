#include "yoke/cli/launch/slurm_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cluster/token.h"
#include "yoke/contract/variables.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::cli {
namespace {

std::vector<std::string> command_of(const launch::SlurmStep& step, const launch::RunOptions& options,
                                    const Context& context) {
  auto words = step.srun;
  words.push_back(options.remote_yoke.empty() ? context.installation.executable.string() : options.remote_yoke);
  words.insert(words.end(), context.words.begin(), context.words.end());
  return words;
}

}  // namespace

void become_slurm_step(const launch::SlurmStep& step, const launch::RunOptions& options, const Context& context) {
  const auto srun = find_program("srun", context.environment);
  if (!srun && step.may_run_here) return;
  if (!srun) {
    throw Error(ErrorCode::kNotFound,
                "SLURM_JOB_ID is {}, but srun, which starts the ranks on the nodes of that job, is not in PATH; load "
                "the module of Slurm, or add --standalone to run on this machine alone",
                printable(step.job_id));
  }
  try {
    slurm::check_controller(context.environment);
  } catch (const Error& error) {
    const bool is_foreign = error.code() == ErrorCode::kFailedPrecondition || error.code() == ErrorCode::kNotFound;
    if (!is_foreign) throw;
    if (!step.may_run_here) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "SLURM_JOB_ID is {}, but no step of that job can start from here: {}; in a container, mount the "
                  "configuration of Slurm and the socket of munge, or start the container on each node by `srun "
                  "--ntasks-per-node=1`; --standalone runs on this machine alone",
                  printable(step.job_id), error.what());
    }
    if (!options.quiet) {
      std::cerr << fmt::format("yoke run: the ranks start without a step of Slurm, and get no signals of it: {}\n",
                               error.what());
    }
    return;
  }
  auto environment = step.environment;
  if (!environment.contains(variable::kJobToken)) environment.set(variable::kJobToken, cluster::new_token());
  const auto words = command_of(step, options, context);
  const auto variables = environment.to_strings();
  execve(srun->c_str(), exec_pointers(words).data(), exec_pointers(variables).data());
  throw system_error(errno, "starting " + srun->string());
}

int show_slurm_step(const launch::SlurmStep& step, const launch::RunOptions& options, bool as_json, Context& context) {
  const auto ranks = options.is_nproc_given ? options.nproc_per_node : "of the job";
  const auto words = command_of(step, options, context);
  nlohmann::ordered_json json = {{"hosts", nlohmann::ordered_json::array()}, {"srun", words}};
  Table table{.columns = {{"node", Align::kRight}, {"host"}, {"ranks"}, {"program", Align::kLeft, 20}}};
  for (size_t node = 0; node < step.nodes.size(); ++node) {
    const auto& host = step.nodes[node];
    const bool is_spare = std::ssize(step.nodes) - static_cast<int64_t>(node) <= options.spares;
    table.rows.push_back({is_spare ? "spare" : fmt::format("{}", node), printable(host), ranks,
                          fmt::format("{}", fmt::join(context.rest, " "))});
    json["hosts"].push_back({{"node_rank", is_spare ? nlohmann::ordered_json() : nlohmann::ordered_json(node)},
                             {"host", host},
                             {"num_ranks", ranks},
                             {"argv", context.rest}});
  }
  if (as_json) {
    print_json(json, context);
  } else {
    context.out << to_text(table, table_width(context))
                << fmt::format("\nstarted by: {}\n", printable(fmt::format("{}", fmt::join(words, " "))));
  }
  return kExitOk;
}

}  // namespace yoke::cli
