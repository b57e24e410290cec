#include "yoke/device/cpu/count.h"

#include <algorithm>

#include "yoke/base/affinity.h"
#include "yoke/base/sysfs.h"

namespace yoke::device {

int64_t count_numa_nodes(const std::filesystem::path& sysfs_nodes, const CpuSet& allowed) {
  int64_t count = 0;
  for (const auto& [number, node] : numbered(sysfs_nodes, "node")) {
    const auto cpus = CpuSet::parse_list(text_of(node / "cpulist"));
    if (cpus && cpus->intersects(allowed)) ++count;
  }
  return std::max<int64_t>(1, count);
}

CpuCount count_cpus() {
  const auto allowed = allowed_cpus();
  return {allowed.size(), count_numa_nodes("/sys/devices/system/node", allowed)};
}

}  // namespace yoke::device
