#include "yoke/device/cpu/locality.h"

#include <algorithm>
#include <string_view>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/cpu/detail/files.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

std::optional<CpuSet> read_list(const fs::path& file) {
  const auto text = read_text(file);
  return text ? CpuSet::parse_list(*text) : std::nullopt;
}

/// Reads "Cpus_allowed_list" or "Mems_allowed_list" of /proc/self/status.
std::optional<CpuSet> find_list(std::string_view status, std::string_view name) {
  const auto line = find_line(status, name);
  return line ? CpuSet::parse_list(*line) : std::nullopt;
}

class LocalityReader {
 public:
  explicit LocalityReader(const fs::path& sysroot) : sysroot_(sysroot), cpus_(sysroot / "sys/devices/system/cpu") {}

  CpuLocality read() {
    CpuLocality result;
    const auto status = read_text(sysroot_ / "proc/self/status").value_or("");
    const auto online = read_list(cpus_ / "online");
    const auto mask = find_list(status, "Cpus_allowed_list:");
    result.allowed = mask && online ? *mask & *online : mask.value_or(online.value_or(CpuSet{0}));
    if (result.allowed.empty()) result.allowed = online.value_or(CpuSet{0});
    read_nodes(online.value_or(result.allowed), find_list(status, "Mems_allowed_list:"), result);
    for (const auto& node : result.nodes) add(result.packages, node.cpus, "topology/core_siblings_list");
    for (const auto cpu : result.allowed.to_vector()) {
      add(result.packages, {cpu}, "topology/core_siblings_list");
      add(result.cores, {cpu}, "topology/thread_siblings_list");
      add_cache(result.caches, cpu);
    }
    result.cpu_limit = read_cgroup_cpus(sysroot_);
    keep_shared_and_allowed(result);
    return result;
  }

 private:
  fs::path file_of(int64_t cpu, std::string_view name) const { return cpus_ / ("cpu" + std::to_string(cpu)) / name; }

  void read_nodes(const CpuSet& online, const std::optional<CpuSet>& allowed_memory, CpuLocality& result) const {
    const auto root = sysroot_ / "sys/devices/system/node";
    for (const auto number : read_list(root / "online").value_or(CpuSet()).to_vector()) {
      auto cpus = read_list(root / ("node" + std::to_string(number)) / "cpulist").value_or(CpuSet());
      if (cpus.empty()) continue;  // a node with memory and without CPUs: CXL, or a GPU's memory
      result.nodes.push_back({number, std::move(cpus)});
      result.memory_nodes.add(number);
    }
    if (result.nodes.empty()) {  // the kernel was built without NUMA
      result.nodes.push_back({0, online});
      result.memory_nodes.add(0);
    }
    if (const auto has_memory = read_list(root / "has_memory")) result.memory_nodes &= *has_memory;
    if (allowed_memory) result.memory_nodes &= *allowed_memory;
  }

  /// Reads a set from the file `name` of the first CPU in `cpus`. Adds it to `sets`, unless one of them already has
  /// that CPU. If files contradict each other, the first one that names a CPU wins.
  void add(std::vector<CpuSet>& sets, const CpuSet& cpus, std::string_view name) const {
    const auto cpu = *cpus.first();
    const auto has_it = [cpu](const CpuSet& set) { return set.contains(cpu); };
    if (std::any_of(sets.rbegin(), sets.rend(), has_it)) return;
    auto set = read_list(file_of(cpu, name)).value_or(cpus);
    for (const auto& other : sets) set -= other;
    set.add(cpu);
    sets.push_back(std::move(set));
  }

  /// The last-level cache has the same index in sysfs for all CPUs that have one. (The low-power cores of some laptops
  /// have none.)
  void add_cache(std::vector<CpuSet>& caches, int64_t cpu) {
    if (std::ranges::any_of(caches, [cpu](const CpuSet& set) { return set.contains(cpu); })) return;
    auto set = last_level_ ? read_list(cache_file(cpu, *last_level_, "shared_cpu_list")) : std::nullopt;
    if (!set) {
      last_level_ = last_level(cpu);
      set = last_level_ ? read_list(cache_file(cpu, *last_level_, "shared_cpu_list")) : std::nullopt;
    }
    if (set) caches.push_back(*std::move(set));
  }

  fs::path cache_file(int64_t cpu, int64_t number, std::string_view name) const {
    return file_of(cpu, "cache") / ("index" + std::to_string(number)) / name;
  }

  /// Returns the index in sysfs of the CPU's highest-level cache that holds data.
  std::optional<int64_t> last_level(int64_t cpu) const {
    std::optional<int64_t> best;
    int64_t best_level = 0;
    for (int64_t number = 0;; ++number) {
      const auto level = read_number(cache_file(cpu, number, "level"));
      if (!level) return best;
      if (*level <= best_level || read_text(cache_file(cpu, number, "type")) == "Instruction") continue;
      best = number, best_level = *level;
    }
  }

  fs::path sysroot_, cpus_;
  std::optional<int64_t> last_level_;
};

}  // namespace

CpuLocality read_cpu_locality(const fs::path& sysroot) { return LocalityReader(sysroot).read(); }

std::optional<DeviceLocality> read_device_locality(const std::string& pci_bus_id, const fs::path& sysroot) {
  const auto cpus = read_text(sysroot / "sys/bus/pci/devices" / pci_bus_id / "local_cpulist");
  if (!cpus) return std::nullopt;
  return DeviceLocality{pci_bus_id, CpuSet::parse_list(*cpus).value_or(CpuSet())};
}

CpuLocality restrict(CpuLocality locality, const CpuSet& allowed) {
  if (!locality.allowed.intersects(allowed)) {
    throw Error(ErrorCode::kInvalidArgument, "none of the CPUs {} may be used; the machine has, or allows, {}",
                allowed.to_list(), locality.allowed.to_list());
  }
  locality.allowed &= allowed;
  keep_shared_and_allowed(locality);
  return locality;
}

void keep_shared_and_allowed(CpuLocality& locality) {
  const auto by_first = [](const CpuSet& a, const CpuSet& b) { return a.first() < b.first(); };
  const auto& allowed = locality.allowed;
  std::erase_if(locality.cores, [&](const CpuSet& core) { return !core.intersects(allowed); });
  std::erase_if(locality.caches, [&](const CpuSet& cache) {
    const auto is_within = [&](const CpuSet& core) { return cache.is_subset_of(core); };
    return !cache.intersects(allowed) || std::ranges::any_of(locality.cores, is_within);
  });
  for (auto* sets : {&locality.packages, &locality.caches, &locality.cores}) {
    std::sort(sets->begin(), sets->end(), by_first);
  }
}

}  // namespace yoke::device
