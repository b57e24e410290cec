// yoke/device/amdgpu/detail/kfd.h -- reads GPUs, links and processes from AMD's compute driver in /sys/class/kfd/kfd.
// Source: Linux, drivers/gpu/drm/amd/amdkfd/{kfd_topology,kfd_crat,kfd_process}.c
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::device::amdgpu {

/// A node of KFD's topology that is a GPU. A card that is divided into partitions (MI300X) has several nodes.
struct KfdGpu {
  int64_t node = 0;
  int64_t gpu_id = 0;  ///< The GPU's id in KFD's files about processes.
  std::string pci_bus_id;
  int64_t partition = 0;  ///< The index of the partition within its card.
  std::string uuid;       ///< The UUID as ROCr writes it; empty if the GPU has none.
  std::string target;
  std::optional<int64_t> render_minor;
  std::optional<int64_t> memory_total_bytes;
  /// Whether the card is divided into partitions, of which this GPU is one. The card's own figures are then about all.
  bool is_partition = false;
  int64_t num_compute_units = 0;

  bool operator==(const KfdGpu&) const = default;
};

struct KfdTopology {
  bool is_there = false;
  std::vector<KfdGpu> gpus;  ///< In KFD's order, which ROCr uses too.
  /// The number of nodes that the kernel hides because this process's devices cgroup excludes their render nodes.
  int64_t num_denied = 0;
};
KfdTopology read_kfd_topology(const std::filesystem::path& kfd);

/// Returns the direct links to other GPUs. GPUs that can only be reached through other GPUs are left out.
std::vector<Link> read_kfd_links(const std::filesystem::path& kfd, const std::vector<KfdGpu>& gpus, const KfdGpu& gpu);

/// Returns the processes that have memory or a queue on `gpu`. (Each process using KFD has files about every GPU.)
std::vector<DeviceProcess> read_kfd_processes(const std::filesystem::path& kfd, const KfdGpu& gpu, const Want& want);

/// Returns the memory that is used on `gpu`; nullopt if this kernel does not tell.
std::optional<int64_t> read_kfd_used_memory(const std::filesystem::path& kfd, const KfdGpu& gpu);

/// Whether GPUs with this target are part of a processor and have little memory or none of their own.
bool is_integrated(std::string_view target);

/// Returns the target's name: "gfx90a" for 90010, "gfx1030" for 100300; empty for 0, a node without a GPU.
std::string gfx_target(int64_t version);

}  // namespace yoke::device::amdgpu
