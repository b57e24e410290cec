#include "yoke/device/detail/backend.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <vector>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/amdgpu/detail/card.h"
#include "yoke/device/amdgpu/detail/kfd.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

using amdgpu::Card;
using amdgpu::KfdGpu;

class AmdgpuBackend : public Backend {
 public:
  explicit AmdgpuBackend(fs::path sysroot) : sysroot_(std::move(sysroot)), kfd_(sysroot_ / "sys/class/kfd/kfd") {}

  std::string_view name() const override { return "amdgpu"; }
  Vendor vendor() const override { return Vendor::kAmd; }
  int64_t num_devices() const override { return static_cast<int64_t>(devices_.size()); }

  BackendReport open() noexcept override {
    BackendReport report{.backend = std::string(name())};
    auto cards = find_cards();
    const auto topology = amdgpu::read_kfd_topology(kfd_);
    gpus_ = topology.gpus;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      const auto& gpu = gpus_[i];
      const auto card = cards.find(gpu.pci_bus_id);
      const auto folder = card == cards.end() ? sysroot_ / "sys/bus/pci/devices" / gpu.pci_bus_id : card->second;
      auto& known = devices_.emplace_back();
      known.gpu = gpu;
      known.card = Card(folder, sysroot_);
      known.gpu->is_partition = gpu.is_partition || known.card.is_divided();
      known.facts.vendor_index = static_cast<int64_t>(i);
      known.facts.pci_bus_id = gpu.pci_bus_id;
    }
    for (const auto& gpu : gpus_) cards.erase(gpu.pci_bus_id);
    for (const auto& [pci_bus_id, folder] : cards) {
      auto& known = devices_.emplace_back();
      known.card = Card(folder, sysroot_);
      known.facts.pci_bus_id = pci_bus_id;
      known.is_denied = topology.num_denied > 0;
    }
    report.driver_version = read_text(sysroot_ / "sys/module/amdgpu/version").value_or("");
    report.is_available = !devices_.empty();
    if (!devices_.empty()) return report;
    std::error_code error;
    const bool is_loaded = topology.is_there || fs::exists(sysroot_ / "sys/module/amdgpu", error);
    report.reason = is_loaded ? "no AMD GPU (the amdgpu driver is loaded, but drives no device)"
                              : "no AMD GPU (the amdgpu driver is not loaded)";
    return report;
  }

  void read(int64_t number, const Want& want, Device& device,
            const std::function<void(const Device&)>& publish) noexcept override {
    auto& known = devices_[static_cast<size_t>(number)];
    device.facts = known.facts;
    if (!known.card.is_there()) {
      device.state = State::kLost;
      device.reason = "it has left the bus: its folder in /sys/bus/pci/devices is gone";
      return;
    }
    // Sensors belong to a card. If the card is divided into partitions, only its first partition reports them, but no
    // partition reports the memory and the utilisation of the card as its own.
    const bool has_sensors = !known.gpu || known.gpu->partition == 0;
    const bool is_partition = known.gpu && known.gpu->is_partition;
    read_facts(known, want);
    device.facts = known.facts;
    if (is_partition) {
      device.readings.memory_total_bytes = known.gpu->memory_total_bytes;
      device.readings.memory_used_bytes = amdgpu::read_kfd_used_memory(kfd_, *known.gpu);
    } else if (known.gpu && amdgpu::is_integrated(known.gpu->target)) {
      known.card.read_unified_memory(device.readings);
    } else {
      known.card.read_memory(device.readings);
    }
    remove_implausible(device);
    if (want.processes && known.gpu) {
      device.processes = amdgpu::read_kfd_processes(kfd_, *known.gpu, want);
      std::error_code none;
      device.has_process_list = fs::is_directory(kfd_ / "proc", none);
    }
    if (want.links && known.gpu) device.links = amdgpu::read_kfd_links(kfd_, gpus_, *known.gpu);
    set_state(known, want, device);
    if (!has_sensors || known.card.is_asleep()) return;
    publish(device);  // the remaining values are read from the card's firmware
    known.card.read_basics(device.readings);
    if (want.details) known.card.read_details(device.readings);
    if (is_partition) device.readings.utilization_percent = device.readings.memory_utilization_percent = std::nullopt;
    remove_implausible(device);
  }

 private:
  struct Known {
    std::optional<KfdGpu> gpu;  ///< nullopt if KFD does not list the card (some integrated GPUs) or hides it.
    Card card;
    Facts facts;
    bool is_denied = false;
    bool has_identity = false;
    bool has_details = false;
  };

  /// Returns the folders of all cards that amdgpu drives, by PCI bus id.
  std::map<std::string, fs::path> find_cards() const {
    std::map<std::string, fs::path> cards;
    for (const auto& [number, card] : numbered(sysroot_ / "sys/class/drm", "card")) {
      const auto uevent = read_text(card / "device/uevent").value_or("");
      std::string driver, bus_id;
      for (const auto line : lines_of(uevent)) {
        if (line.starts_with("DRIVER=")) driver = line.substr(7);
        if (line.starts_with("PCI_SLOT_NAME=")) bus_id = line.substr(14);
      }
      if (driver == "amdgpu" && !bus_id.empty()) cards.emplace(bus_id, card / "device");
    }
    return cards;
  }

  static void read_facts(Known& known, const Want& want) {
    if (!known.has_identity) {
      if (known.gpu) {
        known.facts.uuid = known.gpu->uuid;
        known.facts.target = known.gpu->target;
        known.facts.minor_number = known.gpu->render_minor;
      }
      known.card.read_identity(known.facts);
      known.has_identity = true;
    }
    if (want.details && !known.has_details && !known.card.is_asleep()) {
      known.card.read_details(known.facts);
      known.has_details = true;
    }
  }

  void set_state(const Known& known, const Want& want, Device& device) const {
    set_state_by_use(device, want);
    if (auto reason = obstacle(known); !reason.empty()) {
      device.state = State::kNoPermission;
      device.reason = std::move(reason);
    }
  }

  /// Returns why this user's programs cannot compute on the card, or an empty text if they can. Readings need no such
  /// permission.
  std::string obstacle(const Known& known) const {
    if (known.is_denied) return "this process may not use it: its cgroup (a container, a job) was given other devices";
    std::error_code error;
    if (!fs::exists(sysroot_ / "dev", error)) return {};  // `sysroot_` is a copy of /sys without /dev
    std::vector<std::string> files;
    if (known.gpu) files.emplace_back("dev/kfd");
    if (known.facts.minor_number) files.push_back(fmt::format("dev/dri/renderD{}", *known.facts.minor_number));
    for (const auto& file : files) {
      switch (access_error(sysroot_ / file)) {
        case 0: break;
        case ENOENT:
          return fmt::format("there is no /{} here; give it to the container (--device /dev/kfd --device /dev/dri)",
                             file);
        default: return fmt::format("this user may not open /{}; ask to be added to its group (render or video)", file);
      }
    }
    return {};
  }

  const fs::path sysroot_, kfd_;
  std::vector<KfdGpu> gpus_;
  std::vector<Known> devices_;
};

}  // namespace

std::unique_ptr<Backend> make_amdgpu_backend(const fs::path& sysroot) {
  return std::make_unique<AmdgpuBackend>(sysroot);
}

}  // namespace yoke::device
