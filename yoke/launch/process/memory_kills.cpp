#include "yoke/launch/process/memory_kills.h"

#include <fmt/format.h>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/format.h"
#include "yoke/base/sysfs.h"

namespace yoke::launch {

int64_t MemoryKills::count_of_machine() const {
  const auto counts = parse_properties(text_of(sysroot_ / "proc/vmstat"));
  const auto found = counts.find("oom_kill");
  return found == counts.end() ? 0 : found->second;
}

void MemoryKills::begin() {
  num_of_groups_ = read_cgroup_limits(sysroot_).num_out_of_memory_kills;
  look();
  look();
}

void MemoryKills::look() {
  num_before_ = num_at_last_look_;
  num_at_last_look_ = count_of_machine();
}

std::string MemoryKills::why_killed() const {
  const auto limits = read_cgroup_limits(sysroot_);
  if (limits.num_out_of_memory_kills > num_of_groups_) {
    return fmt::format(" for want of memory: its control group may use no more{}",
                       limits.memory_bytes ? " than " + format_bytes(*limits.memory_bytes) : "");
  }
  if (count_of_machine() > num_before_) {
    return ", probably for want of memory: the kernel has just killed a process of this machine for that";
  }
  return "";
}

}  // namespace yoke::launch
