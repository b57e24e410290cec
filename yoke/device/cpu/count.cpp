#include "yoke/device/cpu/count.h"

#include <sched.h>

#include <algorithm>
#include <memory>

#include "yoke/base/sysfs.h"

namespace yoke::device {
namespace {

CpuSet allowed_cpus() {
  // sched_getaffinity() fails if the mask is smaller than the kernel's, and some machines have more than 1024 CPUs.
  for (int size = 1024; size <= CpuSet::kMaxCpus; size *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(size), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(size);
    if (sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    CpuSet result;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) result.add(cpu);
    }
    return result;
  }
  return {0};
}

}  // namespace

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
