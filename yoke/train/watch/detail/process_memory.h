// yoke/train/watch/detail/process_memory.h -- reads ProcessMemory from /proc and /sys/fs/cgroup.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/watch/memory_summary.h"

namespace yoke::train {

/// `status` and `meminfo` are the texts of /proc/self/status and /proc/meminfo. Lines in a different form are ignored.
/// (pure)
ProcessMemory parse_process_memory(std::string_view status, std::string_view meminfo);

/// A control group that may limit memory: its folder below /sys/fs/cgroup, and the names of its two files.
struct MemoryGroup {
  std::string folder;  ///< "sys/fs/cgroup/user.slice"
  std::string limit_file, used_file;
};

/// Returns the control groups of a process and their ancestors, of cgroup versions 1 and 2. `cgroup` is the text of
/// /proc/self/cgroup. In a container, its path may be the host's; then only the root is found, which is the container's
/// group. (pure)
std::vector<MemoryGroup> memory_groups(std::string_view cgroup);

/// Reads all of these files, below `root`.
ProcessMemory read_process_memory(const std::filesystem::path& root = "/");

}  // namespace yoke::train
