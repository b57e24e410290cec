// yoke/cli/slurm_read.h -- reads what this process of a step really has, for `yoke slurm verify`.
#pragma once

#include "yoke/cli/command.h"
#include "yoke/cli/options/device.h"
#include "yoke/slurm/verify/verify.h"

namespace yoke::cli {

/// Reads CPUs, memory, control group and devices of this process, whatever started it (srun, mpirun, a shell).
slurm::TaskSeen read_task(device::Source& source, const DeviceOptions& options, const Context& context);

}  // namespace yoke::cli
