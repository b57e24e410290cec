// yoke/cli/num_ranks.h -- from `-n auto|gpu|cpu|N` to a number.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "yoke/device/cpu/count.h"
#include "yoke/device/gpu_count.h"

namespace yoke::cli {

/// Asked only when it matters: it takes a process, and on a GPU machine a second.
using CountGpus = std::function<device::GpuCount()>;

/// As torchrun's --nproc-per-node: auto is one rank for each GPU, without any one for each processor.
/// Errors  kInvalidArgument: no such number; kFailedPrecondition: gpu, and there is none (says why).
int64_t parse_num_ranks(std::string_view text, const device::CpuCount& cpus, const CountGpus& count_gpus);

/// For `yoke train` without -n: all GPUs; else one rank for each memory node, and two where there are two processors.
int64_t default_num_ranks(const device::CpuCount& cpus, const CountGpus& count_gpus);

}  // namespace yoke::cli
