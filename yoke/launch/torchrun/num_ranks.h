// yoke/launch/torchrun/num_ranks.h -- turns `-n auto|gpu|cpu|N` into a number.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "yoke/device/cpu/count.h"
#include "yoke/device/gpu_count.h"

namespace yoke::launch {

/// Counts the GPUs. Called only if needed: it starts a process, and takes a second on a machine with GPUs.
using CountGpus = std::function<device::GpuCount()>;

/// Like torchrun's --nproc-per-node: "auto" is one rank for each GPU, or for each CPU if there is no GPU.
/// Errors  kInvalidArgument if `text` is not a number of ranks; kFailedPrecondition if it is "gpu" and there is no GPU.
int64_t parse_num_ranks(std::string_view text, const device::CpuCount& cpus, const CountGpus& count_gpus);

/// For `yoke train` without -n: one rank for each GPU. Without a GPU, one rank for each NUMA node, but at least two if
/// there are two CPUs.
int64_t default_num_ranks(const device::CpuCount& cpus, const CountGpus& count_gpus);

}  // namespace yoke::launch
