#include "yoke/device/amdgpu/detail/kfd.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/sysfs.h"

namespace yoke::device::amdgpu {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kXgmi = 11;            // HSA_IOLINK_TYPE_XGMI
constexpr int64_t kWeightOfOneHop = 15;  // KFD_CRAT_XGMI_WEIGHT between sockets; within a socket it is 13

template <typename Properties>
int64_t value_of(const Properties& properties, std::string_view name) {
  const auto found = properties.find(name);
  return found == properties.end() ? 0 : found->second;
}

std::optional<int64_t> memory_of(const fs::path& node) {
  int64_t total = 0;
  for (const auto& [number, bank] : numbered(node / "mem_banks")) {
    const auto properties = parse_properties(read_text(bank / "properties").value_or(""));
    const auto heap = value_of(properties, "heap_type");
    constexpr int64_t kPublic = 1, kPrivate = 2;  // memory of the GPU; other types are LDS, GDS and host memory
    constexpr int64_t kMost = int64_t{1} << 56;
    const auto size = value_of(properties, "size_in_bytes");
    if ((heap == kPublic || heap == kPrivate) && size > 0 && size <= kMost - total) total += size;
  }
  return total > 0 ? std::optional(total) : std::nullopt;
}

std::optional<KfdGpu> read_gpu(int64_t number, const fs::path& node, int64_t gpu_id) {
  const auto properties = parse_properties(read_text(node / "properties").value_or(""));
  if (value_of(properties, "simd_count") <= 0) return std::nullopt;
  KfdGpu gpu{.node = number, .gpu_id = gpu_id};
  const auto location = static_cast<uint64_t>(value_of(properties, "location_id"));
  gpu.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.{}", value_of(properties, "domain"), location >> 8 & 0xff,
                               location >> 3 & 0x1f, location & 7);
  gpu.partition = static_cast<int64_t>(location >> 28 & 0xf);
  if (const auto id = static_cast<uint64_t>(value_of(properties, "unique_id")); id != 0) {
    gpu.uuid = fmt::format("GPU-{:016x}", id);
  }
  gpu.target = gfx_target(value_of(properties, "gfx_target_version"));
  if (const auto minor = value_of(properties, "drm_render_minor"); minor > 0) gpu.render_minor = minor;
  gpu.memory_total_bytes = memory_of(node);
  const auto simds_per_unit = std::max<int64_t>(1, value_of(properties, "simd_per_cu"));
  gpu.num_compute_units = value_of(properties, "simd_count") / simds_per_unit;
  return gpu;
}

bool has_queue(const fs::path& process, int64_t gpu_id) {
  const auto queues = numbered(process / "queues");
  return std::ranges::any_of(queues, [&](const auto& queue) { return read_number(queue.second / "gpuid") == gpu_id; });
}

}  // namespace

KfdTopology read_kfd_topology(const fs::path& kfd) {
  KfdTopology topology;
  for (const auto& [number, node] : numbered(kfd / "topology" / "nodes")) {
    topology.is_there = true;
    const auto gpu_id = read_number(node / "gpu_id");
    if (!gpu_id) {
      ++topology.num_denied;
    } else if (*gpu_id != 0) {  // CPUs have the id 0
      if (auto gpu = read_gpu(number, node, *gpu_id)) topology.gpus.push_back(*std::move(gpu));
    }
  }
  for (auto& gpu : topology.gpus) {
    const auto is_on_card = [&](const KfdGpu& other) { return other.pci_bus_id == gpu.pci_bus_id; };
    gpu.is_partition = gpu.partition > 0 || std::ranges::count_if(topology.gpus, is_on_card) > 1;
  }
  return topology;
}

std::optional<int64_t> read_kfd_used_memory(const fs::path& kfd, const KfdGpu& gpu) {
  std::optional<int64_t> sum;
  // The file is that of AMD's driver outside of the kernel, and of newer kernels (ROCm/device-metrics-exporter).
  for (const auto& [number, bank] : numbered(kfd / "topology" / "nodes" / fmt::format("{}", gpu.node) / "mem_banks")) {
    constexpr int64_t kMost = int64_t{1} << 56;
    const auto used = read_number(bank / "used_memory");
    if (used && *used >= 0 && *used <= kMost - sum.value_or(0)) sum = sum.value_or(0) + *used;
  }
  return sum;
}

std::vector<Link> read_kfd_links(const fs::path& kfd, const std::vector<KfdGpu>& gpus, const KfdGpu& gpu) {
  std::vector<Link> links;
  for (const auto& [number, link] : numbered(kfd / "topology" / "nodes" / fmt::format("{}", gpu.node) / "io_links")) {
    const auto properties = parse_properties(read_text(link / "properties").value_or(""));
    if (value_of(properties, "type") != kXgmi || value_of(properties, "weight") > kWeightOfOneHop) continue;
    const auto node_to = value_of(properties, "node_to");
    const auto remote = std::ranges::find_if(gpus, [&](const KfdGpu& other) { return other.node == node_to; });
    if (remote == gpus.end() || remote->node == gpu.node) continue;
    // The minimum is the bandwidth of one link, the maximum that of all links between the two GPUs.
    const auto one = value_of(properties, "min_bandwidth");
    const auto all = value_of(properties, "max_bandwidth");
    const int64_t count = one > 0 && all >= one && all / one <= 32 ? all / one : 1;
    for (int64_t i = 0; i < count; ++i) {
      links.push_back({.number = static_cast<int64_t>(links.size()),
                       .kind = "xgmi",
                       .is_active = true,
                       .remote_pci_bus_id = remote->pci_bus_id});
    }
  }
  return links;
}

std::vector<DeviceProcess> read_kfd_processes(const fs::path& kfd, const KfdGpu& gpu, const Want& want) {
  std::vector<DeviceProcess> processes;
  for (const auto& [pid, folder] : numbered(kfd / "proc")) {
    const auto memory = read_number(folder / fmt::format("vram_{}", gpu.gpu_id));
    if (memory.value_or(0) <= 0 && !has_queue(folder, gpu.gpu_id)) continue;
    DeviceProcess process{.pid = pid, .type = "compute", .memory_bytes = memory};
    if (want.process_utilization) {
      const auto busy = read_number(folder / fmt::format("stats_{}", gpu.gpu_id) / "cu_occupancy");
      if (busy) process.utilization_percent = percent(*busy, gpu.num_compute_units);
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

bool is_integrated(std::string_view target) {
  // MI300A is not among them: its driver reports all of its memory as the GPU's.
  constexpr std::array<std::string_view, 12> kTargets = {"gfx902",  "gfx909",  "gfx90c",  "gfx1013",
                                                         "gfx1033", "gfx1035", "gfx1036", "gfx1103",
                                                         "gfx1150", "gfx1151", "gfx1152", "gfx1153"};
  return std::ranges::find(kTargets, target) != kTargets.end();
}

std::string gfx_target(int64_t version) {
  if (version <= 0) return {};
  return fmt::format("gfx{}{:x}{:x}", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace yoke::device::amdgpu
