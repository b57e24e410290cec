// yoke/device/doctor/doctor.h -- finds what prevents programs from using this machine's devices. Derives findings from
// observations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/environment.h"
#include "yoke/device/device.h"
#include "yoke/device/doctor/kernel_log.h"
#include "yoke/device/doctor/library_file.h"
#include "yoke/device/doctor/torch_install.h"
#include "yoke/device/gpu_count.h"

namespace yoke::device {

/// A GPU as the PCI bus lists it, with or without a driver.
struct PciGpu {
  std::string pci_bus_id;
  Vendor vendor = Vendor::kNvidia;
  std::string kernel_driver;  ///< "nvidia", "amdgpu", "nouveau", "vfio-pci"; empty if no driver is bound.
  std::string iommu_type;     ///< "identity", "DMA", "DMA-FQ"; empty without an IOMMU.
};

/// A file in /dev through which programs reach a GPU.
struct DeviceNode {
  std::string path;
  bool is_usable = false;  ///< This user may read and write it.
  std::string owner;       ///< "root:video, mode 660"
};

/// Data from this machine's files.
struct System {
  std::vector<PciGpu> pci_gpus;
  std::string nvidia_module_version;  ///< Version of the loaded kernel module.
  bool has_kfd = false;               ///< Whether amdgpu's compute interface exists.
  LibraryFile nvml, cuda, hip, nccl, rccl;
  std::string rocm_version;
  std::vector<DeviceNode> nodes;
  CgroupLimits cgroup;
  bool is_contained = false;  ///< True in a container or a Slurm job, which may show only part of the machine.
  bool has_infiniband = false;
  std::optional<int64_t> shared_memory_bytes, shared_memory_free_bytes;          ///< /dev/shm
  std::optional<int64_t> max_locked_bytes, max_open_files, hard_max_open_files;  ///< -1: unlimited.
};

/// Reads proc, sys, dev and etc below `sysroot`. The limits of this process are read only if `sysroot` is "/". Needs no
/// privileges: files that cannot be read are left out. May block if a driver or a file system hangs.
System read_system(const std::filesystem::path& sysroot, const Environment& environment);

struct Observations {
  Snapshot snapshot;               ///< With processes and details.
  bool has_devices_alone = false;  ///< True for a recording, which contains only devices.
  std::optional<Vendor> vendor;    ///< Only devices of this vendor are looked at (`--vendor`).
  Environment environment;
  std::optional<GpuCount> runtime;  ///< The GPUs that the CUDA or HIP runtime shows to a program started here.
  // nullopt if the files could not be read in time.
  std::optional<System> system;
  std::optional<std::vector<TorchInstall>> torches;
  std::optional<KernelLog> kernel_log;
};

enum class Status { kOk, kWarn, kFail, kSkip };
std::string_view name(Status status);  ///< "ok", "warn", "fail", "skip"

struct Finding {
  std::string id;  ///< "persistence-mode"; stable between versions. docs/doctor.md lists all.
  Status status = Status::kOk;
  std::vector<std::string> devices;  ///< Ids (id_of()) of the affected devices; empty for the whole machine.
  std::string found;                 ///< The observed fact; may contain any bytes.
  std::string advice;                ///< What to do about it; empty if the status is kOk.
};

/// Returns the findings in the order in which a user should check them; those about drivers are first.
std::vector<Finding> findings(const Observations& observations);

nlohmann::ordered_json to_json(const Finding& finding);

}  // namespace yoke::device
