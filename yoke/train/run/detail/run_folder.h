// yoke/train/run/detail/run_folder.h -- chooses the folder of a run.
#pragma once

#include <filesystem>
#include <string>

namespace yoke::train {

/// Returns `wanted` if it is not empty. Otherwise returns runs/NAME; if that exists, appends the next free number. To
/// resume, returns the last such folder, or that of a new run if there is none. Creates the folder of a new run, so
/// that two runs that start together get different folders. Errors  kFailedPrecondition: the folder of a new run holds
/// checkpoints.
std::filesystem::path choose_run_folder(const std::string& name, const std::filesystem::path& wanted, bool resume);

}  // namespace yoke::train
