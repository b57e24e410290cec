#include "yoke/cluster/held.h"

#include <poll.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::cluster {
namespace {

using slurm::Phase;

constexpr std::chrono::milliseconds kFirstReleasePause{20}, kLongestReleasePause{2000};
/// Slurm says that a job runs until slurmd has told it that its processes have ended, then that it is completing, and
/// only then why it has ended.
constexpr int kEndTries = 50, kEndPauseMs = 100;
/// How long a command may stay after its job for a slurmctld that does not answer.
constexpr std::chrono::seconds kEndQuestion{5};

}  // namespace

std::string kept_log_text(const std::string& job, const Environment& environment) {
  const auto log = kept_log(job, environment);
  return log ? "; what its keeper and srun said is in " + printable(log->string()) : "";
}

std::vector<HeldAllocation> held_allocations(const Environment& environment) {
  std::vector<HeldAllocation> result;
  std::string silent;  // why Slurm does not answer, so that it is asked once
  std::string here;    // its cluster, once it is known
  for (auto& one : list_allocations(environment)) {
    HeldAllocation held{.allocation = std::move(one), .state = "unknown", .reason = silent};
    try {
      if (silent.empty()) {
        if (here.empty() && !held.allocation.cluster.empty()) here = slurm::cluster_name(environment);
        if (!held.allocation.cluster.empty() && held.allocation.cluster != here) {
          held.state = kElsewhere;
          held.reason = "of cluster " + held.allocation.cluster;
          result.push_back(std::move(held));
          continue;
        }
        const auto job = slurm::find_job(held.allocation.job, environment);
        const auto phase = job ? phase_of(*job) : Phase::kEnded;
        if (phase == Phase::kEnded) {
          end_allocation(held.allocation);
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

nlohmann::ordered_json to_json(const Allocation& allocation) {
  Json json = {{"job", allocation.job}, {"name", allocation.name.empty() ? Json() : Json(allocation.name)}};
  json["until"] = allocation.until == 0 ? Json() : Json(allocation.until);
  json["nodes"] = json_list(allocation.nodes, [](const AllocationNode& node) -> Json {
    return {{"name", node.name}, {"gpus", node.num_gpus}, {"cpus", node.num_cpus}};
  });
  return json;
}

void check_cluster(const Allocation& allocation, const Environment& environment) {
  if (allocation.cluster.empty()) return;
  const auto here = slurm::cluster_name(environment);
  if (here == allocation.cluster) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "allocation {} is of cluster {}, and the Slurm of this host is that of {}; do this on a host of the other "
      "cluster",
      allocation.job, printable(allocation.cluster), printable(here));
}

Allocation choose_held(const std::string& name, const Environment& environment) {
  try {
    return choose_allocation(list_allocations(environment), name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
  }
  std::vector<Allocation> living;
  for (auto& one : held_allocations(environment)) {
    if (one.state != kElsewhere) living.push_back(std::move(one.allocation));
  }
  return choose_allocation(living, name);
}

std::optional<std::string> end_of_allocation(const std::string& job, bool nodes_are_lost,
                                             const Environment& environment) {
  try {
    slurm::check_controller(environment, kEndQuestion);
    for (int i = 0;; ++i) {
      const auto found = slurm::find_job(job, environment);
      if (!found) return "Slurm does not know it any more" + kept_log_text(job, environment);
      const auto phase = phase_of(*found);
      const bool is_last = i == kEndTries;
      if (phase == Phase::kHeld || phase == Phase::kWaiting) {
        if (is_last || !nodes_are_lost) return std::nullopt;
        // While a job completes, its list of nodes lacks one that is down.
      } else if (is_last || phase == Phase::kEnded || found->reason == "TimeLimit") {
        return why_ended(*found, environment) + kept_log_text(job, environment);
      }
      poll(nullptr, 0, kEndPauseMs);
    }
  } catch (const Error&) {  // the message about the lost nodes has to be enough
    return std::nullopt;
  }
}

void cancel_job(const std::string& job, const Environment& environment) {
  try {
    slurm::ask({"scancel", job}, environment);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("Invalid job id") == std::string_view::npos) throw;
  }
}

void release_allocation(const Allocation& allocation, std::chrono::milliseconds limit, const Environment& environment) {
  check_cluster(allocation, environment);
  cancel_job(allocation.job, environment);
  auto pause = kFirstReleasePause;
  for (const auto until = Clock::now() + limit;; pause = std::min(pause * 3 / 2, kLongestReleasePause)) {
    const auto job = slurm::find_job(allocation.job, environment);
    if (!job || phase_of(*job) == Phase::kEnded) break;
    if (Clock::now() >= until) {
      throw Error(ErrorCode::kTimeout,
                  "allocation {} is cancelled, but after {} Slurm still waits for processes on its nodes ({})",
                  allocation.job, format_duration(limit), job->state);
    }
    poll(nullptr, 0, static_cast<int>(pause.count()));
  }
  remove_allocation(allocation);
}

}  // namespace yoke::cluster
