// yoke/launch/torchrun/values.h -- parses option values and parts of them, and names the variables of options. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/cpu/count.h"
#include "yoke/device/gpu_count.h"

namespace yoke::launch {

/// Splits "a,b" into "a" and "b".
std::vector<std::string> split_at_commas(const std::string& text);

/// Errors  kInvalidArgument with the name of the option if `text` is not a number.
int64_t to_number(const std::string& text, const char* option);

/// Converts the seconds of an option.
std::chrono::milliseconds to_time(double seconds);

/// Returns the variable from which torchrun takes an option's default: "PET_MAX_RESTARTS" for "max-restarts".
std::string variable_of_option(std::string name);

/// Counts the GPUs. Called only if needed: it starts a process, and takes a second on a machine with GPUs.
using CountGpus = std::function<device::GpuCount()>;

/// Like torchrun's --nproc-per-node: "auto" is one rank for each GPU, or for each CPU if there is no GPU.
/// Errors  kInvalidArgument if `text` is not a number of ranks; kFailedPrecondition if it is "gpu" and there is no GPU.
int64_t parse_num_ranks(std::string_view text, const device::CpuCount& cpus, const CountGpus& count_gpus);

/// For `yoke train` without -n: one rank for each GPU. Without a GPU, one rank for each NUMA node, but at least two if
/// there are two CPUs.
int64_t default_num_ranks(const device::CpuCount& cpus, const CountGpus& count_gpus);

}  // namespace yoke::launch
