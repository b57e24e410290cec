// yoke/train/watch/detail/process_memory.h -- reads ProcessMemory from the kernel's files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/watch/memory_summary.h"

namespace yoke::train {

/// `status` and `meminfo` are /proc/self/status and /proc/meminfo. Lines of another form are left out. (pure)
ProcessMemory parse_process_memory(std::string_view status, std::string_view meminfo);

/// A control group that may limit memory: its folder below /sys/fs/cgroup, and the names of its two files.
struct MemoryGroup {
  std::string folder;  ///< "sys/fs/cgroup/user.slice"
  std::string limit_file, used_file;
};

/// The groups of a process and their ancestors, of version 1 and 2. `cgroup` is /proc/self/cgroup. In a container, the
/// path in it may be that of the host; then only the root is found, which is the container's group. (pure)
std::vector<MemoryGroup> memory_groups(std::string_view cgroup);

/// Reads all of it, below `root`.
ProcessMemory read_process_memory(const std::filesystem::path& root = "/");

}  // namespace yoke::train
