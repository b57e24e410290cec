#include "yoke/device/cpu/count.h"

#include <sched.h>

#include <algorithm>
#include <memory>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::device {
namespace {

std::vector<int> allowed_cpus() {
  // sched_getaffinity() fails if the mask is smaller than the kernel's, and some machines have more than 1024 CPUs.
  for (int size = 1024; size <= 1 << 20; size *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(size), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(size);
    if (sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    std::vector<int> result;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) result.push_back(cpu);
    }
    return result;
  }
  return {0};
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> result;
  while (!text.empty()) {
    auto item = text.substr(0, text.find_first_of(",\n"));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const auto dash = item.find('-');
    const auto first = parse_int(item.substr(0, dash));
    const auto last = dash == item.npos ? first : parse_int(item.substr(dash + 1));
    constexpr size_t kMost = 1 << 20;
    if (!first || !last || *first < 0 || *last >= static_cast<int64_t>(kMost)) continue;
    if (result.size() > kMost) break;  // this cannot be a list of processors
    for (auto cpu = *first; cpu <= *last; ++cpu) result.push_back(static_cast<int>(cpu));
  }
  return result;
}

int64_t count_numa_nodes(const std::filesystem::path& sysfs_nodes, const std::vector<int>& allowed) {
  int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs_nodes, error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("node") || !parse_int(name.substr(4))) continue;
    try {
      const auto cpus = parse_cpu_list(read_file(entry.path() / "cpulist"));
      count += std::find_first_of(cpus.begin(), cpus.end(), allowed.begin(), allowed.end()) != cpus.end() ? 1 : 0;
    } catch (const Error&) {
      continue;  // the node went offline meanwhile
    }
  }
  return std::max<int64_t>(1, count);
}

CpuCount count_cpus() {
  const auto allowed = allowed_cpus();
  return {static_cast<int64_t>(allowed.size()), count_numa_nodes("/sys/devices/system/node", allowed)};
}

}  // namespace yoke::device
