#include "yoke/cli/frame/allocations.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/slurm/holding.h"
#include "yoke/slurm/programs.h"

namespace yoke::cli {
namespace {

using slurm::Phase;

constexpr std::chrono::milliseconds kFirstReleasePause{20}, kLongestReleasePause{2000};

}  // namespace

std::vector<HeldAllocation> held_allocations(const Context& context) {
  std::vector<HeldAllocation> result;
  std::string silent;  // why Slurm does not answer, so that it is asked once
  std::string here;    // its cluster, once it is known
  for (auto& one : cluster::list_allocations(context.environment)) {
    HeldAllocation held{.allocation = std::move(one), .state = "unknown", .reason = silent};
    try {
      if (silent.empty()) {
        if (here.empty() && !held.allocation.cluster.empty()) here = slurm::cluster_name(context.environment);
        if (!held.allocation.cluster.empty() && held.allocation.cluster != here) {
          held.state = kElsewhere;
          held.reason = "of cluster " + held.allocation.cluster;
          result.push_back(std::move(held));
          continue;
        }
        const auto job = slurm::find_job(held.allocation.job, context.environment);
        const auto phase = job ? phase_of(*job) : Phase::kEnded;
        if (phase == Phase::kEnded) {
          cluster::end_allocation(held.allocation);
          continue;
        }
        held.state = phase == Phase::kHeld ? "held" : phase == Phase::kWaiting ? "waiting" : "ending";
        if (phase == Phase::kWaiting) held.reason = slurm::why_waiting(job->reason);
        if (phase != Phase::kWaiting) held.allocation.until = end_of(*job);
      }
    } catch (const Error& error) {
      held.reason = silent = error.what();
    }
    result.push_back(std::move(held));
  }
  return result;
}

nlohmann::ordered_json to_json(const cluster::Allocation& allocation) {
  using Json = nlohmann::ordered_json;
  Json json = {{"job", allocation.job}, {"name", allocation.name.empty() ? Json() : Json(allocation.name)}};
  json["until"] = allocation.until == 0 ? Json() : Json(allocation.until);
  json["nodes"] = Json::array();
  for (const auto& node : allocation.nodes) {
    json["nodes"].push_back({{"name", node.name}, {"gpus", node.num_gpus}, {"cpus", node.num_cpus}});
  }
  return json;
}

void check_cluster(const cluster::Allocation& allocation, const Context& context) {
  if (allocation.cluster.empty()) return;
  const auto here = slurm::cluster_name(context.environment);
  if (here == allocation.cluster) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "allocation {} is of cluster {}, and the Slurm of this host is that of {}; do this on a host of the other "
      "cluster",
      allocation.job, printable(allocation.cluster), printable(here));
}

cluster::Allocation choose_held(const std::string& name, const Context& context) {
  try {
    return choose_allocation(cluster::list_allocations(context.environment), name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
  }
  std::vector<cluster::Allocation> living;
  for (auto& one : held_allocations(context)) {
    if (one.state != kElsewhere) living.push_back(std::move(one.allocation));
  }
  return choose_allocation(living, name);
}

void cancel_job(const std::string& job, const Context& context) {
  try {
    slurm::ask({"scancel", job}, context.environment);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("Invalid job id") == std::string_view::npos) throw;
  }
}

void release_allocation(const cluster::Allocation& allocation, std::chrono::milliseconds limit,
                        const Context& context) {
  check_cluster(allocation, context);
  cancel_job(allocation.job, context);
  auto pause = kFirstReleasePause;
  for (const auto until = std::chrono::steady_clock::now() + limit;;
       pause = std::min(pause * 3 / 2, kLongestReleasePause)) {
    const auto job = slurm::find_job(allocation.job, context.environment);
    if (!job || phase_of(*job) == Phase::kEnded) break;
    if (std::chrono::steady_clock::now() >= until) {
      throw Error(ErrorCode::kTimeout,
                  "allocation {} is cancelled, but after {} Slurm still waits for processes on its nodes ({})",
                  allocation.job, format_duration(limit), job->state);
    }
    poll(nullptr, 0, static_cast<int>(pause.count()));
  }
  cluster::remove_allocation(allocation);
}

}  // namespace yoke::cli
