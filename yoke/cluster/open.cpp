#include "yoke/cluster/open.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"
#include "yoke/cluster/held.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/holding.h"

namespace yoke::cluster {
namespace {

Error has_ended(const Allocation& allocation, const std::optional<slurm::Job>& job, const Environment& environment) {
  if (!allocation.file.empty()) end_allocation(allocation);
  return {ErrorCode::kNotFound, fmt::format("allocation {} has ended: {}{}", allocation.job,
                                            job ? why_ended(*job, environment) : "Slurm does not know it any more",
                                            kept_log_text(allocation.job, environment))};
}

/// Asks Slurm about an allocation that no node tells of. Returns its nodes, for srun.
void use_srun(Allocation& allocation, const Environment& environment) {
  check_cluster(allocation, environment);
  const auto job = slurm::find_job(allocation.job, environment);
  if (!job) {
    if (!allocation.file.empty()) throw has_ended(allocation, job, environment);
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
  if (phase != slurm::Phase::kHeld) throw has_ended(allocation, job, environment);
  allocation.nodes.clear();
  for (const auto& name : expand_hostlist(job->node_list)) allocation.nodes.push_back({.name = name, .address = name});
  allocation.until = end_of(*job);
}

Allocation ready(Allocation allocation, const Environment& environment) {
  if (!allocation.is_ready()) use_srun(allocation, environment);
  return allocation;
}

}  // namespace

Allocation find_allocation(const std::string& name, const std::string& yoke, const Environment& environment) {
  if (name.starts_with('-')) {  // programs of Slurm would take it for an option
    throw Error(ErrorCode::kInvalidArgument, "--in {}: give a job's id, the name of an allocation, or `last`",
                printable(name));
  }
  Allocation allocation;
  try {
    allocation = choose_held(name, environment);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !parse_int(name)) throw;
    allocation.job = name;
    allocation.yoke = yoke;
  }
  return ready(std::move(allocation), environment);
}

OpenAllocation open_allocation(const std::string& name, const std::string& yoke, const Environment& environment) {
  OpenAllocation result{.allocation = find_allocation(name, yoke, environment), .transport = Transport::kSrun};
  auto& allocation = result.allocation;
  if (std::ranges::any_of(allocation.nodes, [](const auto& node) { return node.port == 0; })) return result;
  result.reached = reach(allocation, allocation.nodes, kReachTime);
  const auto is_connected = [](const Reached& one) { return one.kind == Reached::Kind::kConnected; };
  if (std::ranges::any_of(result.reached, is_connected)) {
    result.transport = Transport::kResident;
    return result;
  }
  const auto why = result.reached.front().why;
  try {
    use_srun(allocation, environment);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) throw;
    throw Error(error.code(), "the nodes of allocation {} do not answer ({}), and {}", allocation.job, why,
                error.what());
  }
  result.note = fmt::format(
      "the agents in allocation {} cannot be reached from here ({}), so srun starts programs, which is slower",
      allocation.job, why);
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

}  // namespace yoke::cluster
