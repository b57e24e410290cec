// yoke/slurm/job/verify_step.h -- starts a step whose tasks read what they really have, and judges it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/source.h"
#include "yoke/slurm/verify/verify.h"

namespace yoke::slurm {

struct StepReport {
  std::vector<TaskSeen> tasks;  ///< By rank.
  std::vector<VerifyFinding> findings;
  std::string not_measured = {};  ///< Why copies of memory were not measured; empty if they were, or need not be.
};

struct StepCommand {
  std::vector<std::string> srun;  ///< Options of srun, as for the program that is to be started.
  std::vector<std::string> read;  ///< What each task runs: `yoke slurm verify --read` with its options.

  /// The command line. The ranks `measured` also measure copies of memory. Pure.
  std::vector<std::string> argv(const std::vector<int64_t>& measured) const;
};

/// Ranks with a finding are measured in a second step, because the first one must not disturb itself.
/// Errors  kFailedPrecondition: there is no job here; kNotFound: srun is missing; those of check_controller() and
/// step_failure().
StepReport verify_step(const StepCommand& command, const StepWish& wish, const Environment& environment);

nlohmann::ordered_json to_json(const std::vector<VerifyFinding>& findings);
nlohmann::ordered_json to_json(const StepReport& report);
/// Lines for people.
std::string to_text(const std::vector<VerifyFinding>& findings);
std::string to_text(const StepReport& report, int64_t width);
/// The notes() on tasks, in lines.
std::string notes_text(const std::vector<TaskSeen>& tasks);

struct TaskReaderOptions {
  std::string sysroot;   ///< The folder that holds proc and sys; empty: this machine's.
  bool has_gpus = true;  ///< Whether GPUs are looked at.
};
/// Reads CPUs, memory, control group and devices of this process, whatever started it (srun, mpirun, a shell).
TaskSeen read_task(device::Source& source, const TaskReaderOptions& options, const Environment& environment);

/// Whether srun, mpirun or Flux started this process. Pure.
bool is_a_task(const Environment& environment);

}  // namespace yoke::slurm
