// yoke/slurm/job/task_reader.h -- reads what this process of a step really has, for `yoke slurm verify`.
#pragma once

#include <string>

#include "yoke/base/environment.h"
#include "yoke/device/source.h"
#include "yoke/slurm/verify/verify.h"

namespace yoke::slurm {

struct TaskReaderOptions {
  std::string sysroot;   ///< The folder that holds proc and sys; empty: this machine's.
  bool has_gpus = true;  ///< Whether GPUs are looked at.
};
/// Reads CPUs, memory, control group and devices of this process, whatever started it (srun, mpirun, a shell).
TaskSeen read_task(device::Source& source, const TaskReaderOptions& options, const Environment& environment);

/// Whether srun, mpirun or Flux started this process. Pure.
bool is_a_task(const Environment& environment);

}  // namespace yoke::slurm
