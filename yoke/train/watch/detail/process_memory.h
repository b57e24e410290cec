// yoke/train/watch/detail/process_memory.h -- reads ProcessMemory from the kernel's files.
#pragma once

#include <filesystem>

#include "yoke/train/watch/memory_summary.h"

namespace yoke::train {

/// Reads the files of this process and machine below `root`. What is not there, such as in a container that hides it,
/// is nullopt.
ProcessMemory read_process_memory(const std::filesystem::path& root = "/");

}  // namespace yoke::train
