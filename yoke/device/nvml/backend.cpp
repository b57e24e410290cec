#include "yoke/device/detail/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "yoke/base/sysfs.h"
#include "yoke/device/nvml/detail/reader.h"

namespace yoke::device {
namespace {

using nvml::Handle;
using nvml::Library;
using nvml::Reader;

class NvmlBackend : public Backend {
 public:
  NvmlBackend(std::filesystem::path sysroot, std::string file) : sysroot_(std::move(sysroot)), file_(std::move(file)) {}

  std::string_view name() const override { return "nvml"; }
  Vendor vendor() const override { return Vendor::kNvidia; }
  int64_t num_devices() const override { return static_cast<int64_t>(devices_.size()); }

  BackendReport open() noexcept override {
    BackendReport report{.backend = std::string(name())};
    report.reason = nvml::load(file_, library_);
    if (!report.reason.empty()) return report;
    if (const int status = library_.init(); status != nvml::kSuccess) {
      report.reason = "NVIDIA: " + nvml::describe(status);
      // Container images have the library even without a driver or GPU.
      report.is_broken = status != nvml::kDriverNotLoaded && status != nvml::kGpuNotFound &&
                         status != nvml::kLibraryNotFound && status != nvml::kNotSupported;
      report.has_answered = !report.is_broken;
      return report;
    }
    std::array<char, 96> version = {};
    if (library_.driver_version != nullptr && library_.driver_version(version.data(), version.size() - 1) == 0) {
      report.driver_version = version.data();
    }
    int cuda = 0;
    if (library_.cuda_version != nullptr && library_.cuda_version(&cuda) == nvml::kSuccess) {
      report.api_version = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
    }
    uint32_t count = 0;
    if (const int status = library_.count(&count); status != nvml::kSuccess) {
      report.reason = "NVIDIA: the driver does not return the number of its GPUs: " + nvml::describe(status);
      report.is_broken = true;
      report.has_answered = false;
      return report;
    }
    devices_.resize(std::min<uint32_t>(count, 4096));
    report.is_available = true;
    if (count == 0) report.reason = "the NVIDIA driver has no GPU";
    return report;
  }

  void read(int64_t number, const Want& want, Device& device,
            const std::function<void(const Device&)>& publish) noexcept override {
    auto& known = devices_[static_cast<size_t>(number)];
    device.facts.vendor_index = number;
    if (known.handle == nullptr) {
      const int status = library_.handle_by_index(static_cast<uint32_t>(number), &known.handle);
      if (status != nvml::kSuccess) {
        known.handle = nullptr;
        if (known.facts.pci_bus_id.empty()) known.facts.pci_bus_id = bus_id_of(number);
        device.facts = known.facts;
        device.facts.vendor_index = number;
        set_failure(status, device);
        return;
      }
    }
    read_unit(known, want, device);
    if (device.state == State::kLost) {
      known.handle = nullptr;  // the GPU may return with a different handle
      return;
    }
    read_instances(known, want, device);
    set_state_by_use(device, want);
    if (!want.pcie_throughput) return;
    publish(device);
    Reader(library_, known.handle).read_pcie_throughput(device.readings);
    remove_implausible(device);
  }

 private:
  /// The data about a GPU or MIG device that is kept between samples.
  struct Known {
    Handle handle = nullptr;
    Facts facts;
    bool has_identity = false;
    bool has_details = false;
  };

  /// The bus id of a GPU that NVML does not open, from the driver's list of its GPUs. NVML counts them in the order of
  /// their bus ids. Empty if the list has more or fewer GPUs than NVML.
  std::string bus_id_of(int64_t number) const {
    auto folders = entries_of(sysroot_ / "proc/driver/nvidia/gpus");
    if (folders.size() != devices_.size()) return "";
    // A longer id has a larger domain: "10000:e1:00.0" comes after "0000:e1:00.0".
    std::ranges::stable_sort(folders, {}, [](const auto& folder) { return folder.native().size(); });
    return folders[static_cast<size_t>(number)].filename();
  }

  static void set_failure(int status, Device& device) {
    const bool is_lost = status == nvml::kGpuIsLost || status == nvml::kResetRequired;
    const bool is_forbidden = status == nvml::kNoPermission || status == nvml::kOperatingSystem;
    device.state = is_lost ? State::kLost : is_forbidden ? State::kNoPermission : State::kError;
    device.reason = nvml::describe(status);
  }

  void read_unit(Known& known, const Want& want, Device& device) {
    Reader reader(library_, known.handle);
    const auto vendor_index = device.facts.vendor_index;
    if (!known.has_identity) {
      reader.read_identity(known.facts);
      known.has_identity = reader.loss() == nvml::kSuccess;
    }
    if (want.details && !known.has_details) {
      reader.read_details(known.facts);
      read_sysfs(known.facts);
      known.has_details = reader.loss() == nvml::kSuccess;
    }
    device.facts = known.facts;
    device.facts.vendor_index = vendor_index;
    if (reader.loss() == nvml::kSuccess) reader.read_basics(device.readings);
    if (reader.loss() == nvml::kSuccess && want.details) reader.read_details(device.readings);
    if (reader.loss() == nvml::kSuccess && want.processes) {
      reader.read_processes(device);
    }
    if (reader.loss() == nvml::kSuccess && want.processes && want.process_utilization && !device.processes.empty()) {
      reader.read_process_utilization(device.processes);
    }
    if (reader.loss() == nvml::kSuccess && want.links) device.links = reader.read_links();
    if (device.readings.unified_memory.value_or(false)) read_memory_of_machine(device.readings);
    remove_implausible(device);
    if (reader.loss() == nvml::kSuccess) return;
    // Readings of a lost GPU are not reliable.
    device.readings = {};
    device.processes.clear();
    device.has_process_list = false;
    device.process_list_error.clear();
    device.links.reset();
    set_failure(reader.loss(), device);
  }

  void read_instances(const Known& known, const Want& want, Device& device) {
    Reader parent(library_, known.handle);
    parent.read_mig_mode(device.readings);
    if (!device.readings.mig_enabled.value_or(false)) return;
    const auto handles = parent.mig_handles();
    // Of all instances together, only an administrator gets a list; each instance has its own.
    if (!handles.empty()) device.process_list_error.clear();
    for (const auto& [index, handle] : handles) {
      Known instance{.handle = handle};  // the driver reuses handles for other instances, so no data is kept
      auto& child = device.instances.emplace_back();
      child.vendor = device.vendor;
      child.index = index;
      child.facts.vendor_index = index;
      Want of_instance = want;
      of_instance.links = false;
      read_unit(instance, of_instance, child);
      if (child.state == State::kLost) continue;
      Reader reader(library_, handle);
      child.facts.gpu_instance = reader.gpu_instance();
      child.facts.compute_instance = reader.compute_instance();
      child.facts.pci_bus_id = device.facts.pci_bus_id;
      set_state_by_use(child, want);
      // A process is listed only once, under the MIG instance on which it runs.
      std::erase_if(device.processes, [&](const DeviceProcess& process) {
        const bool is_of_child = process.gpu_instance && process.gpu_instance == child.facts.gpu_instance &&
                                 process.compute_instance == child.facts.compute_instance;
        const auto same = [&](const DeviceProcess& other) { return other.pid == process.pid; };
        const bool is_listed = std::ranges::any_of(child.processes, same);
        if (is_of_child && !is_listed) child.processes.push_back(process);
        return is_of_child || (is_listed && !process.gpu_instance);
      });
    }
  }

  /// The memory in which a GPU without memory of its own computes.
  void read_memory_of_machine(Readings& readings) const {
    const auto memory = parse_properties(read_text(sysroot_ / "proc/meminfo").value_or(""));
    const auto total = memory.find("MemTotal"), available = memory.find("MemAvailable");
    constexpr int64_t kUnit = 1024, kMost = INT64_MAX / kUnit;  // the file has kibibytes
    if (total == memory.end() || total->second > kMost) return;
    if (available == memory.end() || available->second < 0 || available->second > total->second) return;
    readings.memory_total_bytes = total->second * kUnit;
    readings.memory_free_bytes = available->second * kUnit;
    readings.memory_used_bytes = (total->second - available->second) * kUnit;
  }

  void read_sysfs(Facts& facts) const {
    if (facts.pci_bus_id.empty()) return;
    const auto node = read_number(sysroot_ / "sys/bus/pci/devices" / facts.pci_bus_id / "numa_node");
    if (node && *node >= 0) facts.numa_node = node;
  }

  const std::filesystem::path sysroot_;
  const std::string file_;
  Library library_ = {};
  std::vector<Known> devices_;
};

}  // namespace

std::unique_ptr<Backend> make_nvml_backend(const std::filesystem::path& sysroot, const std::string& library) {
  return std::make_unique<NvmlBackend>(sysroot, library);
}

}  // namespace yoke::device
