#include "yoke/cli/options/allocation.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/allocations.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/holding.h"
#include "yoke/slurm/programs.h"

namespace yoke::cli {
namespace {

using cluster::Allocation;
using cluster::Reached;
using cluster::Transport;

/// Slurm says that a job runs until slurmd has told it that its processes have ended, then that it is completing, and
/// only then why it has ended.
constexpr int kEndTries = 50, kEndPauseMs = 100;
/// How long a command may stay after its job for a slurmctld that does not answer.
constexpr std::chrono::seconds kEndQuestion{5};

/// "; what ... said is in FILE", or nothing.
std::string kept_log_text(const std::string& job, const Context& context) {
  const auto log = cluster::kept_log(job, context.environment);
  return log ? "; what its keeper and srun said is in " + printable(log->string()) : "";
}

Error has_ended(const Allocation& allocation, const std::optional<slurm::Job>& job, const Context& context) {
  if (!allocation.file.empty()) cluster::end_allocation(allocation);
  return {ErrorCode::kNotFound,
          fmt::format("allocation {} has ended: {}{}", allocation.job,
                      job ? why_ended(*job, context.environment) : "Slurm does not know it any more",
                      kept_log_text(allocation.job, context))};
}

/// Asks Slurm about an allocation that no node tells of. Returns its nodes, for srun.
void use_srun(Allocation& allocation, const Context& context) {
  check_cluster(allocation, context);
  const auto job = slurm::find_job(allocation.job, context.environment);
  if (!job) {
    if (!allocation.file.empty()) throw has_ended(allocation, job, context);
    throw Error(ErrorCode::kNotFound, "you hold no allocation {}, and Slurm knows no such job; see `yoke alloc --list`",
                allocation.job);
  }
  const auto user = device::user_name(geteuid());
  if (allocation.file.empty() && job->user != user) {
    throw Error(ErrorCode::kPermissionDenied, "job {} belongs to {}; only that user can start programs in it",
                allocation.job, printable(job->user));
  }
  const auto phase = phase_of(*job);
  if (phase == slurm::Phase::kWaiting) {
    throw Error(ErrorCode::kUnavailable, "allocation {} has not started: {}", allocation.job,
                slurm::why_waiting(job->reason));
  }
  if (phase != slurm::Phase::kHeld) throw has_ended(allocation, job, context);
  allocation.nodes.clear();
  for (const auto& name : expand_hostlist(job->node_list)) allocation.nodes.push_back({.name = name, .address = name});
  allocation.until = end_of(*job);
}

Allocation ready(Allocation allocation, const Context& context) {
  if (!allocation.is_ready()) use_srun(allocation, context);
  return allocation;
}

}  // namespace

CLI::Option* add_in_option(CLI::App& command, std::string& name) {
  return command
      .add_option("--in", name,
                  "In an allocation that `yoke alloc` holds: its job's id, its name, or `last` for the only one; or in "
                  "another running job of yours")
      ->type_name("JOB");
}

Allocation find_allocation(const std::string& name, const Context& context) {
  if (name.starts_with('-')) {  // programs of Slurm would take it for an option
    throw Error(ErrorCode::kInvalidArgument, "--in {}: give a job's id, the name of an allocation, or `last`",
                printable(name));
  }
  Allocation allocation;
  try {
    allocation = choose_held(name, context);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !parse_int(name)) throw;
    allocation.job = name;
    allocation.yoke = context.installation.executable.string();
  }
  return ready(std::move(allocation), context);
}

OpenAllocation open_allocation(const std::string& name, const Context& context) {
  OpenAllocation result{.allocation = find_allocation(name, context), .transport = Transport::kSrun, .reached = {}};
  auto& allocation = result.allocation;
  if (std::ranges::any_of(allocation.nodes, [](const auto& node) { return node.port == 0; })) return result;
  result.reached = reach(allocation, allocation.nodes, cluster::kReachTime);
  const auto is_connected = [](const Reached& one) { return one.kind == Reached::Kind::kConnected; };
  if (std::ranges::any_of(result.reached, is_connected)) {
    result.transport = Transport::kResident;
    return result;
  }
  const auto why = result.reached.front().why;
  try {
    use_srun(allocation, context);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) throw;
    throw Error(error.code(), "the nodes of allocation {} do not answer ({}), and {}", allocation.job, why,
                error.what());
  }
  std::cerr << fmt::format(
                   "{}the agents in allocation {} cannot be reached from here ({}), so srun starts programs, "
                   "which is slower\n",
                   speaker(context), allocation.job, why)
            << std::flush;
  return result;
}

std::vector<launch::Host> OpenAllocation::take_hosts(const std::vector<std::string>& names) {
  auto hosts = to_hosts(allocation, allocation.nodes, std::move(reached), transport);
  if (names.empty()) return hosts;
  std::vector<launch::Host> chosen;
  for (const auto& name : names) {
    check_node(allocation, name);
    chosen.push_back(*std::ranges::find(hosts, name, &launch::Host::name));
  }
  return chosen;
}

std::optional<std::string> end_of_allocation(const std::string& job, bool nodes_are_lost, const Context& context) {
  try {
    slurm::check_controller(context.environment, kEndQuestion);
    for (int i = 0;; ++i) {
      const auto found = slurm::find_job(job, context.environment);
      if (!found) return "Slurm does not know it any more" + kept_log_text(job, context);
      const auto phase = phase_of(*found);
      const bool is_last = i == kEndTries;
      if (phase == slurm::Phase::kHeld || phase == slurm::Phase::kWaiting) {
        if (is_last || !nodes_are_lost) return std::nullopt;
        // While a job completes, its list of nodes lacks one that is down.
      } else if (is_last || phase == slurm::Phase::kEnded || found->reason == "TimeLimit") {
        return why_ended(*found, context.environment) + kept_log_text(job, context);
      }
      poll(nullptr, 0, kEndPauseMs);
    }
  } catch (const Error&) {  // the message about the lost nodes has to be enough
    return std::nullopt;
  }
}

}  // namespace yoke::cli
