// yoke/slurm/script/plan.h -- turns a request in terms of nodes, ranks and devices into a batch script for a site.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/slurm/site/site.h"

namespace yoke::slurm {

enum class Launcher {
  kAuto,
  kSrun,    ///< One task for each rank; the script tells each its rank.
  kYoke,    ///< One `yoke run` on each node, which starts the ranks.
  kItself,  ///< One task on each node, because the program is a launcher: torchrun, `yoke run`, deepspeed.
};

/// What a user asks for.
struct Request {
  std::vector<std::string> argv;  ///< The program. "{cpus}" (of a rank) and "{gpus}" (of a node) are replaced.
  int64_t num_nodes = 1;
  std::optional<int64_t> gpus_per_node;   ///< All that the site's nodes have, unless given.
  std::optional<int64_t> ranks_per_node;  ///< One for each GPU, or 1, unless given.
  std::optional<int64_t> cpus_per_rank;   ///< The site's, unless given.
  std::string time, memory, partition, account, qos, constraint, reservation, array, dependency, job_name;
  std::vector<std::string> options;  ///< Further options of sbatch: "--mail-type=END".
  Launcher launcher = Launcher::kAuto;
  std::string container, overlay;   ///< An image and a squashfs or ext3 file; empty: none.
  std::vector<std::string> mounts;  ///< Folders for the container: "/data" or "/data:/mnt".
  std::vector<std::string> modules;
  Variables variables;  ///< Exported by the job, as they are.
  /// The ranks are told to stop so long before the job's time ends; 0: not at all; nullopt: 120 s, or less in a job
  /// of less than 5 minutes.
  std::optional<int64_t> signal_seconds = {};
  int64_t num_requeues = 20;  ///< How often a job that was told to stop is put back into the queue; 0: never.
  std::string output;         ///< "slurm-%j.out" unless given.
  bool has_file_per_rank = false;
};

/// A part of the script, and why it is there. The reason becomes a comment.
struct Line {
  std::string text, why;

  bool operator==(const Line&) const = default;
};

/// Everything that is in the script. to_script() adds no decision.
struct ScriptPlan {
  std::vector<std::string> title;  ///< Comment lines at the top.
  std::vector<Line> directives;    ///< "--nodes=2"
  std::vector<Line> modules;       ///< Words of `module`; the shell is a login shell if there are any.
  std::string master_suffix;
  std::vector<Line> exports;          ///< NAME=VALUE, for all processes; quoted for the shell.
  std::vector<Line> unset;            ///< Variables.
  std::string job = "$SLURM_JOB_ID";  ///< How scontrol names this job.
  std::vector<std::string> step;      ///< Options of srun.
  std::vector<Line> step_reasons;     ///< What is particular about them.
  std::vector<Line> rank_exports;     ///< NAME=VALUE, inside the step; quoted for the shell.
  std::vector<std::string> folders;   ///< Are made inside the step: "$MIOPEN_USER_DB_PATH".
  std::string cache_folder;           ///< Is removed from each node at the end; empty: none.
  std::vector<std::string> command;   ///< The program, with the words that start a container before it.
  Launcher launcher = Launcher::kSrun;
  int64_t num_ranks = 1;               ///< Of the whole job.
  std::string stop_signal = "USR1";    ///< What the processes of the step get before the job's time ends.
  bool stops_with_any_status = false;  ///< Whether the launcher fails when it is told to stop.
  bool has_rank_tasks = false;  ///< Whether each task of the step is a rank itself, and not a launcher or a container.
  int64_t num_requeues = 0;
  std::vector<Line> decisions;        ///< For the user: what was chosen, and why.
  std::vector<std::string> warnings;  ///< Sentences for the user.

  bool operator==(const ScriptPlan&) const = default;
};

/// Decides the script. `version` is that of the cluster's Slurm; nullopt: not known, the script then suits 22.05
/// to 26.05. Errors  kInvalidArgument: the request contradicts itself or the site; the message says what to give
/// instead.
ScriptPlan plan_script(const Request& request, const Site& site, const std::optional<Version>& version);

/// The text of the script.
std::string to_script(const ScriptPlan& plan);

/// Converts "90m", "2h" or "1d12h" to Slurm's form, "1:30:00", "2:00:00" or "1-12:00:00". Slurm's own forms (minutes,
/// "MM:SS", "H:MM:SS", "D-H[:MM[:SS]]", UNLIMITED) stay. Errors  kInvalidArgument: any other text.
std::string slurm_time(const std::string& text);

}  // namespace yoke::slurm
