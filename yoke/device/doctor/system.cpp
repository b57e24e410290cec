#include <fmt/format.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>

#include "yoke/base/sysfs.h"
#include "yoke/device/doctor/doctor.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

std::vector<PciGpu> pci_gpus(const fs::path& sysroot) {
  std::vector<PciGpu> gpus;
  for (const auto& folder : entries_of(sysroot / "sys/bus/pci/devices")) {
    const auto vendor = text_of(folder / "vendor");
    const auto kind = text_of(folder / "class");
    // PCI classes: 0x03 is a display controller, 0x12 a processing accelerator (AMD Instinct).
    const bool is_gpu = kind.starts_with("0x03") || kind.starts_with("0x12");
    if (!is_gpu || (vendor != "0x10de" && vendor != "0x1002")) continue;
    PciGpu gpu{.pci_bus_id = folder.filename(), .vendor = vendor == "0x10de" ? Vendor::kNvidia : Vendor::kAmd};
    std::error_code error;
    gpu.kernel_driver = fs::read_symlink(folder / "driver", error).filename().string();
    gpu.iommu_type = text_of(folder / "iommu_group/type");
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::string owner_of(const fs::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return "";
  std::array<char, 4096> buffer = {};
  group group_entry = {};
  group* found_group = nullptr;
  getgrgid_r(status.st_gid, &group_entry, buffer.data(), buffer.size(), &found_group);
  const auto group_name = found_group != nullptr ? std::string(group_entry.gr_name) : fmt::format("{}", status.st_gid);
  return fmt::format("{}:{}, mode {:o}", user_name(status.st_uid), group_name, status.st_mode & 07777);
}

std::vector<DeviceNode> device_nodes(const fs::path& sysroot) {
  std::vector<std::string> paths;
  for (const auto& file : entries_of(sysroot / "dev")) {
    const auto name = file.filename().string();
    const bool is_numbered =
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == name.npos;
    if (is_numbered || name == "nvidiactl" || name == "nvidia-uvm" || name == "kfd") paths.push_back("/dev/" + name);
  }
  for (const auto& file : entries_of(sysroot / "dev/dri")) {
    const auto name = file.filename().string();
    if (name.starts_with("renderD")) paths.push_back("/dev/dri/" + name);
  }
  std::vector<DeviceNode> nodes;
  for (const auto& path : paths) {
    const auto file = sysroot / path.substr(1);
    DeviceNode node{.path = path, .is_usable = access(file.c_str(), R_OK | W_OK) == 0};
    if (!node.is_usable) node.owner = owner_of(file);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::optional<int64_t> as_limit(rlim_t limit) { return limit == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit); }

void read_limits_of_process(System& system) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) system.max_locked_bytes = as_limit(limit.rlim_cur);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    system.max_open_files = as_limit(limit.rlim_cur);
    system.hard_max_open_files = as_limit(limit.rlim_max);
  }
  struct statvfs shm = {};
  if (statvfs("/dev/shm", &shm) == 0) {
    system.shared_memory_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    system.shared_memory_free_bytes = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
}

}  // namespace

System read_system(const fs::path& sysroot, const Environment& environment) {
  System system;
  system.pci_gpus = pci_gpus(sysroot);
  system.nvidia_module_version = text_of(sysroot / "sys/module/nvidia/version");
  system.has_kfd = is_there(sysroot / "sys/class/kfd/kfd");
  const auto library_path = environment.value_or("LD_LIBRARY_PATH", "");
  const auto rocm = environment.value_or("ROCM_PATH", "/opt/rocm");
  const auto find = [&](std::string_view name) { return find_library(name, sysroot, library_path, {rocm + "/lib"}); };
  system.nvml = find("libnvidia-ml.so.1");
  system.cuda = find("libcuda.so.1");
  system.hip = find("libamdhip64.so");
  system.nccl = find("libnccl.so.2");
  system.rccl = find("librccl.so.1");
  system.rocm_version = text_of(sysroot / fs::path(rocm).relative_path() / ".info/version");
  system.nodes = device_nodes(sysroot);
  system.cgroup = read_cgroup_limits(sysroot);
  system.is_contained = is_there(sysroot / ".dockerenv") || is_there(sysroot / "run/.containerenv") ||
                        environment.contains("SLURM_JOB_ID") || environment.contains("APPTAINER_CONTAINER") ||
                        environment.contains("KUBERNETES_SERVICE_HOST");
  system.has_infiniband = !entries_of(sysroot / "sys/class/infiniband").empty();
  if (sysroot == "/") read_limits_of_process(system);
  return system;
}

}  // namespace yoke::device
