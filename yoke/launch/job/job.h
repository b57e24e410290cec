// yoke/launch/job/job.h -- a job as the commands `yoke jobs`, `logs`, `stop` and `stack` see it.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/launch/plan/plan.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// The service under which launchers listen (base/user_socket.h).
inline constexpr std::string_view kJobService = "yoke";

struct JobRank {
  int64_t rank = 0;
  int64_t local_rank = 0;
  std::string host;
  int64_t pid = 0;                 ///< The PID on the rank's host; 0 if the rank has not started yet.
  std::optional<int> wait_status;  ///< Unset until the rank has ended.
  StreamPlan out, err;             ///< The destinations of its output.
  std::string prefix;              ///< The prefix of each of its lines.

  bool is_up() const { return pid > 0 && !wait_status; }
  bool operator==(const JobRank&) const = default;
};

struct Job {
  int64_t pid = 0;  ///< The launcher's PID, by which `yoke` commands name the job.
  std::string name;
  std::string run_id;
  bool has_random_id = false;  ///< LaunchSpec::has_random_id.
  std::vector<std::string> argv;
  std::string folder;  ///< The folder in which the job was started.
  std::string host;    ///< The host of the launcher.
  std::chrono::system_clock::time_point started_at;
  int64_t num_ranks = 0;   ///< Of this launcher: of all hosts in the head of the job, of its own host elsewhere.
  int64_t world_size = 0;  ///< Of all hosts, if this launcher has only the ranks of its own; else 0.
  int64_t num_restarts = 0;
  RestartLimit restarts;
  bool is_stopping = false;    ///< Whether a signal or `yoke stop` told the job to stop.
  std::vector<JobRank> ranks;  ///< The ranks of the present attempt.

  void begin_attempt(const std::vector<RankPlan>& plans, int64_t restart_count);
  void on_started(int64_t rank, int64_t rank_pid);
  void on_exited(int64_t rank, int wait_status);
  int64_t num_up() const;

  bool operator==(const Job&) const = default;
};

/// Describes the job of this launcher process, which starts now.
Job describe_job(const LaunchSpec& spec);

/// Converts a job to JSON. docs/jobs.md has the keys.
nlohmann::ordered_json to_json(const Job& job);
/// Errors  nlohmann::json::exception if a key is missing or has the wrong type; kDataLoss: no job has such numbers.
Job parse_job(const nlohmann::ordered_json& json);

}  // namespace yoke::launch
