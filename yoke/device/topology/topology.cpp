#include "yoke/device/topology/topology.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/cpu/detail/files.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libhwloc.so.15";  // the soname of all versions 2.x

/// The functions of hwloc that yoke uses. hwloc's inline helpers are not used, because they call other functions.
struct Hwloc {
  decltype(&hwloc_topology_init) init;
  decltype(&hwloc_topology_destroy) destroy;
  decltype(&hwloc_topology_load) load;
  decltype(&hwloc_topology_set_xml) set_xml;
  decltype(&hwloc_topology_set_flags) set_flags;
  decltype(&hwloc_topology_set_components) set_components;
  decltype(&hwloc_topology_set_io_types_filter) set_io_types_filter;
  decltype(&hwloc_topology_get_allowed_cpuset) allowed_cpuset;
  decltype(&hwloc_get_type_depth) type_depth;
  decltype(&hwloc_get_nbobjs_by_depth) num_objects;
  decltype(&hwloc_get_obj_by_depth) object;
  decltype(&hwloc_bitmap_list_asprintf) to_list;
  decltype(&hwloc_bitmap_weight) weight;
  decltype(&hwloc_bitmap_first) first;
};

template <typename Function>
void find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Error(ErrorCode::kNotFound, "topology: {} lacks {}; install hwloc 2", kLibrary, name);
}

Hwloc open_hwloc() {
  // The library is never closed, because hwloc keeps state until the process ends.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::kNotFound,
                "topology: {}, which describes where devices and processors are, is not installed; install "
                "libhwloc15 (Debian, Ubuntu) or hwloc",
                kLibrary);
  }
  Hwloc hwloc = {};
  find_symbol(library, "hwloc_topology_init", hwloc.init);
  find_symbol(library, "hwloc_topology_destroy", hwloc.destroy);
  find_symbol(library, "hwloc_topology_load", hwloc.load);
  find_symbol(library, "hwloc_topology_set_xml", hwloc.set_xml);
  find_symbol(library, "hwloc_topology_set_flags", hwloc.set_flags);
  find_symbol(library, "hwloc_topology_set_components", hwloc.set_components);
  find_symbol(library, "hwloc_topology_set_io_types_filter", hwloc.set_io_types_filter);
  find_symbol(library, "hwloc_topology_get_allowed_cpuset", hwloc.allowed_cpuset);
  find_symbol(library, "hwloc_get_type_depth", hwloc.type_depth);
  find_symbol(library, "hwloc_get_nbobjs_by_depth", hwloc.num_objects);
  find_symbol(library, "hwloc_get_obj_by_depth", hwloc.object);
  find_symbol(library, "hwloc_bitmap_list_asprintf", hwloc.to_list);
  find_symbol(library, "hwloc_bitmap_weight", hwloc.weight);
  find_symbol(library, "hwloc_bitmap_first", hwloc.first);
  return hwloc;
}

/// Sets an environment variable during its lifetime.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string hwloc_list(const Hwloc& hwloc, hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (bitmap == nullptr || hwloc.to_list(&text, bitmap) < 0) return {};
  const std::unique_ptr<char, void (*)(void*)> owner(text, &std::free);
  return text;
}

/// Converts hwloc's topology into a Topology.
class TopologyReader {
 public:
  TopologyReader(const Hwloc& hwloc, hwloc_topology_t topology) : hwloc_(hwloc), topology_(topology) {}

  Topology read() {
    Topology result;
    const auto* machine = hwloc_.object(topology_, 0, 0);
    result.cpus = list(machine->cpuset);
    result.num_cores = static_cast<int64_t>(objects(HWLOC_OBJ_CORE).size());
    result.num_cpus = static_cast<int64_t>(objects(HWLOC_OBJ_PU).size());
    for (const auto* object : objects(HWLOC_OBJ_PACKAGE)) {
      auto name = info(object, "CPUModel");
      name.erase(name.find_last_not_of(' ') + 1);
      result.packages.push_back({.number = object->os_index, .name = std::move(name), .cpus = list(object->cpuset)});
    }
    for (const auto* object : objects(HWLOC_OBJ_NUMANODE)) {
      NumaNode node{.number = object->os_index, .cpus = list(object->cpuset)};
      node.memory_bytes = static_cast<int64_t>(object->attr->numanode.local_memory);
      const auto* package = object;
      while (package != nullptr && package->type != HWLOC_OBJ_PACKAGE) package = package->parent;
      if (package != nullptr) node.package = package->os_index;
      result.numa_nodes.push_back(std::move(node));
    }
    std::ranges::sort(result.numa_nodes, [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
    for (const auto type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L1CACHE}) {
      const auto caches = objects(type);
      if (caches.empty()) continue;
      const auto& cache = caches.front()->attr->cache;
      result.caches.push_back({cache.depth, static_cast<int64_t>(caches.size()), static_cast<int64_t>(cache.size)});
    }
    read_cores(result);
    for (const auto* object : objects(HWLOC_OBJ_PCI_DEVICE)) {
      if (auto device = pci_device(object)) result.devices.push_back(*std::move(device));
    }
    std::ranges::sort(result.devices, {}, &PciDevice::pci_bus_id);
    return result;
  }

 private:
  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const {
    const int depth = hwloc_.type_depth(topology_, type);
    std::vector<hwloc_obj_t> result;
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return result;
    for (unsigned i = 0; i < hwloc_.num_objects(topology_, depth); ++i) {
      result.push_back(hwloc_.object(topology_, depth, i));
    }
    return result;
  }

  void read_cores(Topology& result) const {
    auto cores = objects(HWLOC_OBJ_CORE);
    if (cores.empty()) cores = objects(HWLOC_OBJ_PU);  // some virtual machines report hardware threads but no cores
    for (const auto* core : cores) {
      result.cores.push_back(list(core->cpuset));
      const hwloc_obj* cache = nullptr;
      for (const auto* object = core->parent; object != nullptr; object = object->parent) {
        if (object->type >= HWLOC_OBJ_L1CACHE && object->type <= HWLOC_OBJ_L5CACHE) cache = object;
      }
      if (cache == nullptr) continue;
      auto cpus = list(cache->cpuset);
      if (result.last_level_caches.empty() || result.last_level_caches.back() != cpus) {
        result.last_level_caches.push_back(std::move(cpus));
      }
    }
  }

  std::string list(hwloc_const_bitmap_t bitmap) const { return hwloc_list(hwloc_, bitmap); }

  static std::string info(const hwloc_obj* object, std::string_view name) {
    for (unsigned i = 0; i < object->infos_count; ++i) {
      if (name == object->infos[i].name) return object->infos[i].value;
    }
    return {};
  }

  static std::string bus_id(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
  }

  static std::optional<PciDevice::Kind> kind_of(const hwloc_obj* object) {
    const auto& pci = object->attr->pcidev;
    const int base_class = pci.class_id >> 8;
    constexpr int kDisplay = 0x03, kProcessing = 0x12, kNetwork = 0x02, kInfiniband = 0x0c06;
    if (base_class == kDisplay || base_class == kProcessing) {
      // Display devices of other vendors are management controllers of servers.
      const bool computes = pci.vendor_id == 0x10de || pci.vendor_id == 0x1002 || pci.vendor_id == 0x8086;
      return computes ? std::optional(PciDevice::Kind::kGpu) : std::nullopt;
    }
    if (base_class == kNetwork || pci.class_id == kInfiniband) return PciDevice::Kind::kNic;
    return std::nullopt;
  }

  std::optional<PciDevice> pci_device(const hwloc_obj* object) const {
    const auto kind = kind_of(object);
    if (!kind) return std::nullopt;
    const auto& pci = object->attr->pcidev;
    PciDevice device{.kind = *kind, .pci_bus_id = bus_id(pci), .vendor_id = pci.vendor_id, .device_id = pci.device_id};
    const char* vendor = pci.vendor_id == 0x10de ? "NVIDIA" : pci.vendor_id == 0x1002 ? "AMD" : "Intel";
    device.name = *kind == PciDevice::Kind::kGpu ? fmt::format("{} 0x{:04x}", vendor, pci.device_id)
                                                 : fmt::format("{:04x}:{:04x}", pci.vendor_id, pci.device_id);
    if (const auto name = info(object, "PCIDevice"); !name.empty()) device.name = name;
    for (const auto* child = object->io_first_child; child != nullptr; child = child->next_sibling) {
      if (child->type == HWLOC_OBJ_OS_DEVICE && child->name != nullptr) device.os_names.emplace_back(child->name);
    }
    const auto* parent = object->parent;
    for (; parent != nullptr && parent->type == HWLOC_OBJ_BRIDGE; parent = parent->parent) {
      const auto& bridge = parent->attr->bridge;
      device.bridges.push_back(
          bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI
              ? bus_id(bridge.upstream.pci)
              : fmt::format("host {:04x}:{:02x}", bridge.downstream.pci.domain, bridge.downstream.pci.secondary_bus));
    }
    std::ranges::reverse(device.bridges);
    if (parent == nullptr) return device;
    device.cpus = list(parent->cpuset);
    if (parent->nodeset != nullptr && hwloc_.weight(parent->nodeset) == 1)
      device.numa_node = hwloc_.first(parent->nodeset);
    return device;
  }

  const Hwloc& hwloc_;
  hwloc_topology_t topology_;
};

/// Whether `device` is a virtual function of a network card, made for a virtual machine or a container.
bool is_virtual(const PciDevice& device, const fs::path& sysroot) {
  std::error_code error;
  return fs::exists(sysroot / "sys/bus/pci/devices" / device.pci_bus_id / "physfn", error);
}

}  // namespace

Topology load_topology(const TopologyOptions& options) {
  const bool is_file = !options.xml_file.empty();
  std::error_code error;
  if (is_file && !fs::is_regular_file(options.xml_file, error)) {
    throw Error(ErrorCode::kNotFound, "topology: {} is not a file", options.xml_file.string());
  }
  const auto hwloc = open_hwloc();
  // The plugins of hwloc ask drivers, which may take seconds or hang.
  const ScopedVariable no_plugins("HWLOC_PLUGINS_PATH", "/dev/null");
  const ScopedVariable no_warnings("HWLOC_HIDE_ERRORS",
                                   "2");  // hides warnings about inconsistent firmware
  std::optional<ScopedVariable> root;
  if (!is_file && options.sysroot != "/") root.emplace("HWLOC_FSROOT", options.sysroot.c_str());

  hwloc_topology_t made = nullptr;
  if (hwloc.init(&made) != 0) throw Error(ErrorCode::kUnavailable, "topology: hwloc cannot be initialised");
  const std::unique_ptr<hwloc_topology, decltype(hwloc.destroy)> topology(made, hwloc.destroy);
  hwloc.set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc.set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // The x86 component would bind this thread to each CPU in turn, only to learn what sysfs already says.
  hwloc.set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if ((is_file && hwloc.set_xml(made, options.xml_file.c_str()) != 0) || hwloc.load(made) != 0) {
    const auto what = is_file ? options.xml_file.string() : "this machine";
    throw Error(ErrorCode::kDataLoss, "topology: hwloc cannot read {}; give a file that `lstopo FILE.xml` wrote", what);
  }
  auto result = TopologyReader(hwloc, made).read();
  if (is_file) return result;
  std::erase_if(result.devices, [&](const PciDevice& device) { return is_virtual(device, options.sysroot); });
  // hwloc knows only cpusets. Affinity masks (taskset, Slurm) may be smaller.
  const auto status = read_text(options.sysroot / "proc/self/status").value_or("");
  const auto allowed = find_line(status, "Cpus_allowed_list:");
  result.allowed_cpus = allowed ? std::string(*allowed) : hwloc_list(hwloc, hwloc.allowed_cpuset(made));
  return result;
}

}  // namespace yoke::device
