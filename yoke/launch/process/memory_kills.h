// yoke/launch/process/memory_kills.h -- whether the kernel has killed a process for want of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace yoke::launch {

/// Counts such kills in this process's control groups, which contain the ranks unless they have moved, and on the whole
/// machine. The kernel's log would name the process, but users may not read it.
class MemoryKills {
 public:
  explicit MemoryKills(std::filesystem::path sysroot = "/") : sysroot_(std::move(sysroot)) {}

  /// A start of ranks begins.
  void begin();
  /// To be called now and then: of the machine's kills, only those since the last call but one count.
  void look();
  /// Returns why the kernel has sent SIGKILL to a process that has just ended by it, to follow "was killed by SIGKILL";
  /// empty if the kernel has not, as far as it counts.
  std::string why_killed() const;

 private:
  int64_t count_of_machine() const;

  std::filesystem::path sysroot_;
  int64_t num_of_groups_ = 0;
  int64_t num_at_last_look_ = 0, num_before_ = 0;  ///< Of the machine.
};

}  // namespace yoke::launch
