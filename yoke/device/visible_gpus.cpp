#include "yoke/device/visible_gpus.h"

#include <string>

#include "yoke/base/sysfs.h"
#include "yoke/device/amdgpu/detail/kfd.h"
#include "yoke/device/cpu/detail/files.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

Device make_gpu(Vendor vendor, std::string pci_bus_id, std::string uuid) {
  Device gpu;
  gpu.vendor = vendor;
  gpu.facts.pci_bus_id = std::move(pci_bus_id);
  gpu.facts.uuid = std::move(uuid);
  return gpu;
}

/// The NVIDIA driver has a folder for each of its GPUs. The folder's name is the bus id.
void add_nvidia(const fs::path& sysroot, std::vector<Device>& gpus) {
  for (const auto& folder : entries_of(sysroot / "proc/driver/nvidia/gpus")) {
    const auto text = text_of(folder / "information");
    const auto uuid = find_line(text, "GPU UUID:");
    gpus.push_back(make_gpu(Vendor::kNvidia, folder.filename(), std::string(uuid.value_or(""))));
  }
}

}  // namespace

std::vector<DeviceLocality> visible_gpus(const Environment& environment, const fs::path& sysroot) {
  Snapshot snapshot;
  add_nvidia(sysroot, snapshot.devices);
  const auto num_nvidia = static_cast<int64_t>(snapshot.devices.size());
  for (auto& gpu : amdgpu::read_kfd_topology(sysroot / "sys/class/kfd/kfd").gpus) {
    snapshot.devices.push_back(make_gpu(Vendor::kAmd, std::move(gpu.pci_bus_id), std::move(gpu.uuid)));
  }
  for (size_t i = 0; i < snapshot.devices.size(); ++i) {
    auto& gpu = snapshot.devices[i];
    gpu.index = static_cast<int64_t>(i);
    gpu.facts.vendor_index = gpu.vendor == Vendor::kAmd ? gpu.index - num_nvidia : gpu.index;
  }
  std::vector<DeviceLocality> result;
  if (snapshot.devices.empty()) return result;
  const auto rows = visibility(environment, snapshot).devices;
  for (const auto vendor : {Vendor::kNvidia, Vendor::kAmd}) {
    for (const auto& row : rows) {
      if (row.vendor != vendor || !row.ordinal) continue;
      const auto& id = snapshot.devices[static_cast<size_t>(row.index)].facts.pci_bus_id;
      result.push_back(read_device_locality(id, sysroot).value_or(DeviceLocality{id, {}}));
    }
    if (!result.empty()) break;
  }
  return result;
}

}  // namespace yoke::device
