#include "yoke/train/watch/detail/process_memory.h"

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/sysfs.h"

namespace yoke::train {

ProcessMemory read_process_memory(const std::filesystem::path& root) {
  const auto of_process = parse_properties(yoke::text_of(root / "proc/self/status"));
  const auto of_machine = parse_properties(yoke::text_of(root / "proc/meminfo"));
  const auto size = [](const auto& kibibytes, std::string_view name) {
    const auto found = kibibytes.find(name);
    return found == kibibytes.end() ? std::nullopt : std::optional(found->second * 1024);
  };
  const auto limits = read_cgroup_limits(root);
  ProcessMemory memory;
  memory.resident_bytes = size(of_process, "VmRSS");
  memory.anonymous_bytes = size(of_process, "RssAnon");
  memory.file_bytes = size(of_process, "RssFile");
  memory.shared_bytes = size(of_process, "RssShmem");
  memory.peak_resident_bytes = size(of_process, "VmHWM");
  memory.swapped_bytes = size(of_process, "VmSwap");
  memory.limit_bytes = limits.memory_bytes;
  memory.limit_used_bytes = limits.memory_used_bytes;
  memory.machine_bytes = size(of_machine, "MemTotal");
  memory.machine_available_bytes = size(of_machine, "MemAvailable");
  return memory;
}

}  // namespace yoke::train
