// yoke/device/amdgpu/detail/kfd.h -- GPUs, their links and their processes as AMD's compute driver lists them in
// /sys/class/kfd/kfd.
// Source: Linux, drivers/gpu/drm/amd/amdkfd/{kfd_topology,kfd_crat,kfd_process}.c
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::device::amdgpu {

/// A node of KFD's topology that is a GPU. A card that is divided into partitions (MI300X) has several nodes.
struct KfdGpu {
  int64_t node = 0;
  int64_t gpu_id = 0;  ///< The GPU's id in KFD's files about processes.
  std::string pci_bus_id;
  int64_t partition = 0;  ///< The index of the partition within its card.
  std::string uuid;       ///< The UUID as ROCr writes it; empty: the GPU has none.
  std::string target;
  std::optional<int64_t> render_minor;
  std::optional<int64_t> memory_total_bytes;
  int64_t num_compute_units = 0;

  bool operator==(const KfdGpu&) const = default;
};

struct KfdTopology {
  bool is_there = false;
  std::vector<KfdGpu> gpus;  ///< In KFD's order, which ROCr uses too.
  /// How many nodes the kernel hides because the devices cgroup of this process does not include their render nodes.
  int64_t num_denied = 0;
};
KfdTopology read_kfd_topology(const std::filesystem::path& kfd);

/// Direct links to other GPUs. A GPU that is only reached through other GPUs is left out.
std::vector<Link> read_kfd_links(const std::filesystem::path& kfd, const std::vector<KfdGpu>& gpus, const KfdGpu& gpu);

/// Processes that have memory or a queue on `gpu`. (KFD has files about every GPU for each process that uses KFD.)
std::vector<DeviceProcess> read_kfd_processes(const std::filesystem::path& kfd, const KfdGpu& gpu, const Want& want);

/// 90010 -> "gfx90a", 100300 -> "gfx1030"; empty for 0, a node without a GPU.
std::string gfx_target(int64_t version);

}  // namespace yoke::device::amdgpu
