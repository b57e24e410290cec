// yoke/train/run/detail/run_folder.h -- where a run lives.
#pragma once

#include <filesystem>
#include <string>

namespace yoke::train {

/// `wanted`, or when that is empty runs/NAME or the next free number of it; to resume, the last one there is. Makes the
/// folder of a new run, so that two runs that start together take two.
/// Errors  kNotFound when there is nothing to resume; kFailedPrecondition when a new run's folder holds checkpoints.
std::filesystem::path choose_run_folder(const std::string& name, const std::filesystem::path& wanted, bool resume);

}  // namespace yoke::train
