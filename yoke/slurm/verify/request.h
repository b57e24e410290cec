// yoke/slurm/verify/request.h -- what the tasks of a step should have, from srun's options and a job's variables. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/slurm/site/site.h"
#include "yoke/slurm/verify/verify.h"

namespace yoke::slurm {

struct StepRequest {
  int64_t num_nodes = 1, num_tasks = 1;
  std::optional<int64_t> cpus_per_task, gpus_per_task, gpus_per_node, gpus;
  std::string cpu_bind, gpu_bind;
  bool refuses_gpus = false;  ///< --gpus=0, --gres=none: the step wants none, whatever the job has.

  bool wants_gpu() const { return !refuses_gpus && (gpus_per_task || gpus_per_node || gpus); }

  bool operator==(const StepRequest&) const = default;
};

/// Reads the options that say how many tasks, CPUs and GPUs a step has, and the variables of a job for the others.
/// Other options are left out. `version` is that of the Slurm; nullopt: not known.
/// Errors  kInvalidArgument: a number has a wrong form.
StepRequest read_step_request(const std::vector<std::string>& options, const Environment& environment,
                              const std::optional<Version>& version);

/// Errors  kInvalidArgument: the words contain a program, which srun would start instead of the verification.
void check_no_program(const std::vector<std::string>& options);

/// The error for a step that failed. srun says the reason first and "Job step aborted" last, so all of its lines count.
Error step_failure(const CommandOutput& output, std::chrono::milliseconds limit);

/// One sentence about each task: how many CPUs and GPUs it should have.
std::vector<std::string> describe(const StepRequest& request);

/// Returns what is wrong with such a step wherever it runs.
std::vector<VerifyFinding> judge(const StepRequest& request);

/// Returns what is wrong with a step that asks for GPUs on the nodes of `site`.
std::vector<VerifyFinding> judge(const StepRequest& request, const Site& site);

}  // namespace yoke::slurm
