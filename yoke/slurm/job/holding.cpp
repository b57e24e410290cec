#include "yoke/slurm/job/holding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/site/detect.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {

std::vector<std::string> request_command(const HoldingRequest& request) {
  // --no-requeue: after a failure of a node the allocation ends, instead of beginning again without its user.
  std::vector<std::string> words = {"sbatch",
                                    "--parsable",
                                    "--no-requeue",
                                    "--export=ALL",
                                    "--input=/dev/null",
                                    "--output=/dev/null",
                                    fmt::format("--nodes={}", request.num_nodes),
                                    "--ntasks-per-node=1"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", option, value));
  };
  add("--job-name", request.name.empty() ? kHoldingName : request.name);
  add("--time", request.time);
  add("--partition", request.partition);
  add("--account", request.account);
  add("--gpus-per-node", request.gpus_per_node);
  if (request.cpus_per_node) words.push_back(fmt::format("--cpus-per-task={}", *request.cpus_per_node));
  words.insert(words.end(), request.more.begin(), request.more.end());
  std::vector<std::string> quoted;
  for (const auto& word : request.program) quoted.push_back(shell_quoted(word));
  words.push_back(fmt::format("--wrap=exec {}", fmt::join(quoted, " ")));
  return words;
}

Phase phase_of(const Job& job) {
  if (job.has_ended()) return Phase::kEnded;
  if (job.is_waiting() || job.state == "CONFIGURING") return Phase::kWaiting;
  return job.state == "COMPLETING" ? Phase::kEnding : Phase::kHeld;
}

int64_t end_of(const Job& job) { return job.ended ? std::chrono::system_clock::to_time_t(*job.ended) : 0; }

std::string cluster_name(const Environment& environment) {
  return parse_config(ask({"scontrol", "show", "config"}, environment)).name;
}

std::optional<Job> find_job(const std::string& id, const Environment& environment) {
  const auto name = parse_job_name(id);
  auto jobs = name ? known_jobs(*name, environment) : std::vector<Job>();
  return jobs.empty() ? std::nullopt : std::optional(std::move(jobs.front()));
}

int64_t count_before(std::string_view text, const std::string& job) {
  std::optional<int64_t> own;
  std::vector<int64_t> others;
  for (const auto line : lines_of(text)) {
    const auto bar = line.find('|');
    const auto priority = bar == line.npos ? std::nullopt : parse_int(line.substr(bar + 1));
    if (!priority) continue;
    if (line.substr(0, bar) == job) {
      own = priority;
    } else {
      others.push_back(*priority);
    }
  }
  return own ? std::ranges::count_if(others, [&](int64_t one) { return one > *own; }) : 0;
}

int64_t jobs_before(const Job& job, const Environment& environment) {
  const auto text =
      ask({"squeue", "--noheader", "--states=PENDING", "--partition=" + job.partition, "--format=%i|%Q"}, environment);
  return count_before(text, job.id);
}

std::string why_waiting(const std::string& reason) {
  if (reason.empty()) return "Slurm has not looked at it yet";
  const auto meaning = explain_reason(reason).meaning;
  return fmt::format("{} ({})", meaning.empty() ? "Slurm gives this reason" : meaning, printable(reason));
}

std::string why_ended(const Job& job) {
  const auto& state = job.state;
  const auto& reason = job.reason;
  if (state == "TIMEOUT" || reason == "TimeLimit") return "its time limit was reached (TIMEOUT)";
  if (state == "NODE_FAIL" || reason == "NodeDown") return "a node of it has failed (NODE_FAIL)";
  if (state == "PREEMPTED") return "a job with a higher priority took its nodes (PREEMPTED)";
  if (state == "DEADLINE") return "its deadline has passed (DEADLINE)";
  if (state == "OUT_OF_MEMORY" || reason == "OutOfMemory") return "it used more memory than it has (OUT_OF_MEMORY)";
  if (state == "CANCELLED") return "it was released or cancelled (CANCELLED)";
  if (state == "COMPLETED") return "it was released (COMPLETED)";
  if (state == "FAILED" && job.exit_code == 127)
    return "the program that holds it was not found on the node; give the path of yoke there by --remote-yoke (FAILED)";
  if (state == "FAILED" && job.signal != 0)
    return fmt::format("signal {} ended the program that holds it (FAILED)", job.signal);
  if (state == "FAILED" || state == "BOOT_FAIL")
    return fmt::format("it failed with exit status {} ({})", job.exit_code, state);
  if (state == "COMPLETING") return "it is being released (COMPLETING)";
  return fmt::format("Slurm says {}", printable(state.empty() ? "nothing about it" : state));
}

std::string why_ended(const Job& job, const Environment& environment) {
  auto text = why_ended(job);
  if (job.node_list.empty() || (job.state != "NODE_FAIL" && job.reason != "NodeDown")) return text;
  std::set<std::string> down;
  try {
    const auto names =
        ask({"sinfo", "--noheader", "--Node", "--nodes=" + job.node_list, "--states=DOWN", "--format=%N"}, environment);
    for (const auto name : lines_of(names)) down.emplace(printable(name));
  } catch (const Error&) {  // the text has to be enough
  }
  return down.empty() ? text
                      : fmt::format("{}: {} {} down", text, fmt::join(down, ", "), down.size() == 1 ? "is" : "are");
}

Environment without_outer_job(Environment environment) {
  constexpr auto kKept = std::to_array<std::string_view>(
      {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"});
  environment.erase_if([&](const auto& name) {
    const bool is_of_job = begins_with_any(name, {"SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_"});
    return is_of_job && std::ranges::find(kKept, name) == kKept.end();
  });
  return environment;
}

bool belongs_to_step(std::string_view name) {
  static constexpr auto kDevices =
      std::to_array<std::string_view>({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                       "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "NVIDIA_VISIBLE_DEVICES"});
  return name.starts_with("SLURM") || name.starts_with("PMI_") || name.starts_with("PMIX_") ||
         std::ranges::find(kDevices, name) != kDevices.end();
}

}  // namespace yoke::slurm
