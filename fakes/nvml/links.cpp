// The fake's topology: processors near the devices, and links between them.
#include <algorithm>
#include <charconv>
#include <string>

#include "call.h"

namespace yoke::fake_nvml {
namespace {

constexpr int kInternal = 0, kNode = 40, kSystem = 50;

/// Converts a topology level as nvidia-smi writes it, such as "PIX", to NVML's number.
int level_of(const Json& text) {
  constexpr struct {
    const char* name;
    int level;
  } kLevels[] = {{"X", kInternal}, {"INT", kInternal}, {"PIX", 10},     {"PXB", 20},
                 {"PHB", 30},      {"NODE", kNode},    {"SYS", kSystem}};
  for (const auto& known : kLevels) {
    if (text == known.name) return known.level;
  }
  return kSystem;
}

/// Returns the entry for two devices in an N x N matrix of the state; null if there is none.
const Json& entry(const State& state, const char* matrix, size_t row, size_t column) {
  static const Json& none = *new Json;
  const Json& rows = member(state.root, matrix);
  return rows.size() > row && rows[row].size() > column ? rows[row][column] : none;
}

int common_level(const State& state, size_t a, size_t b) {
  if (a == b) return kInternal;
  if (const Json& given = entry(state, "topology", a, b); !given.is_null()) return level_of(given);
  return member(state.devices[a], "numa_node") == member(state.devices[b], "numa_node") ? kNode : kSystem;
}

/// Returns the bus id of the other end of a link; empty for an inactive link.
std::string remote_bus_id(const State& state, const Json& link) {
  if (link.is_number_unsigned() && link.get<size_t>() < state.devices.size()) {
    return full_bus_id(state.devices[link.get<size_t>()].value("pci_bus_id", ""));
  }
  return link.is_string() ? full_bus_id(link.get<std::string>()) : "";
}

bool is_device(const State& state, const std::string& bus_id) {
  return std::any_of(state.devices.begin(), state.devices.end(),
                     [&](const Json& device) { return full_bus_id(device.value("pci_bus_id", "")) == bus_id; });
}

/// Whether two devices are linked with each other, or with the same switch.
bool are_linked(const State& state, size_t a, size_t b) {
  const auto bus_id_of = [&](size_t i) { return full_bus_id(state.devices[i].value("pci_bus_id", "")); };
  for (const Json& link : member(state.devices[a], "nvlinks")) {
    const auto remote = remote_bus_id(state, link);
    if (remote.empty()) continue;
    if (remote == bus_id_of(b)) return true;
    if (is_device(state, remote)) continue;
    for (const Json& other : member(state.devices[b], "nvlinks")) {
      if (remote_bus_id(state, other) == remote) return true;
    }
  }
  return false;
}

/// Calls `body(target, entry)` with the entry of link number `link`. For a GPU without links, returns "not supported".
/// For a number after a GPU's last link, returns "invalid argument".
int on_link(const char* function, Handle handle, Size link, auto body) {
  return on_device(function, handle, [&](const Target& target) -> int {
    const Json& links = member(target.fields, "nvlinks");
    if (links.empty()) return kNotSupported;
    if (link >= links.size()) return kInvalidArgument;
    return body(target, links[link]);
  });
}

/// Stores a list such as "0-31,64" as a bit mask in words of 64 bits.
int store_bits(const Json& list, Size num_words, unsigned long* words) {
  if (num_words == 0 || words == nullptr) return kInvalidArgument;
  if (!list.is_string()) return kNotSupported;
  std::fill_n(words, num_words, 0UL);
  const auto& text = list.get_ref<const std::string&>();
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    size_t first = 0, last = 0;
    at = std::from_chars(at, end, first).ptr;
    last = first;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    for (size_t bit = first; bit <= last && bit < size_t{num_words} * 64; ++bit) words[bit / 64] |= 1UL << bit % 64;
    ++at;  // skips the comma
  }
  return kSuccess;
}

int processors(const char* function, Handle handle, Size num_words, unsigned long* words) {
  return on_device(function, handle, [&](const Target& target) {
    return store_bits(member(target.device, "cpu_affinity"), num_words, words);
  });
}

/// Calls `body(state, index, index)` for two handles of whole devices.
int on_two(const char* function, Handle first, Handle second, auto body) {
  return on_device(function, first, [&](const Target& a) -> int {
    Place b;
    if (const int status = find(a.state, second, b); status != kSuccess) return status;
    if (const int status = trouble_at(a.state, b, function); status != kSuccess) return status;
    if (a.is_instance() || b.instance >= 0) return kNotSupported;
    return body(a.state, a.place.device, b.device);
  });
}

}  // namespace
}  // namespace yoke::fake_nvml

using namespace yoke::fake_nvml;  // NOLINT: only definitions of the C interface follow

extern "C" {

int nvmlDeviceGetCpuAffinity(Handle device, Size num_words, unsigned long* words) {
  return processors(__func__, device, num_words, words);
}

int nvmlDeviceGetCpuAffinityWithinScope(Handle device, Size num_words, unsigned long* words, Size) {
  return processors(__func__, device, num_words, words);
}

int nvmlDeviceGetMemoryAffinity(Handle device, Size num_words, unsigned long* words, Size) {
  return on_device(__func__, device, [&](const Target& target) {
    const Json& node = member(target.device, "numa_node");
    return store_bits(node.is_number() ? Json(node.dump()) : Json(), num_words, words);
  });
}

int nvmlDeviceGetNumaNodeId(Handle device, Size* node) {
  return on_device(__func__, device, [&](const Target& target) { return store(target.number("gpu_numa_node"), node); });
}

int nvmlDeviceGetTopologyCommonAncestor(Handle first, Handle second, int* level) {
  return on_two(__func__, first, second, [&](const State& state, size_t a, size_t b) {
    return store({kSuccess, static_cast<double>(common_level(state, a, b))}, level);
  });
}

int nvmlDeviceGetTopologyNearestGpus(Handle device, int level, Size* count, Handle* array) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (count == nullptr || (*count > 0 && array == nullptr)) return kInvalidArgument;
    const Size room = *count;
    *count = 0;
    for (size_t i = 0; i < target.state.devices.size(); ++i) {
      if (i == target.place.device || common_level(target.state, target.place.device, i) != level) continue;
      if (*count < room) array[*count] = handle_of({i, -1});
      ++*count;
    }
    return kSuccess;
  });
}

int nvmlDeviceGetP2PStatus(Handle first, Handle second, Size capability, int* p2p) {
  constexpr Size kNvlink = 2;
  constexpr int kOk = 0, kP2pNotSupported = 5;
  return on_two(__func__, first, second, [&](const State& state, size_t a, size_t b) -> int {
    if (p2p == nullptr || capability > 4) return kInvalidArgument;
    const Json& given = entry(state, "p2p", a, b);
    if (capability == kNvlink) {
      *p2p = are_linked(state, a, b) ? kOk : kP2pNotSupported;
    } else {
      *p2p = given.is_number_integer() ? given.get<int>() : kOk;
    }
    return kSuccess;
  });
}

int nvmlDeviceGetNvLinkState(Handle device, Size link, Size* is_active) {
  return on_link(__func__, device, link, [&](const Target& target, const Json& entry_of) {
    return store({kSuccess, remote_bus_id(target.state, entry_of).empty() ? 0.0 : 1.0}, is_active);
  });
}

int nvmlDeviceGetNvLinkVersion(Handle device, Size link, Size* version) {
  return on_link(__func__, device, link,
                 [&](const Target& target, const Json&) { return store(target.number("nvlink", "version"), version); });
}

int nvmlDeviceGetNvLinkCapability(Handle device, Size link, Size capability, Size* has) {
  return on_link(__func__, device, link, [&](const Target&, const Json&) -> int {
    constexpr Size kSliBridge = 4, kValid = 5;
    return capability > kValid ? kInvalidArgument : store({kSuccess, capability == kSliBridge ? 0.0 : 1.0}, has);
  });
}

int nvmlDeviceGetNvLinkErrorCounter(Handle device, Size link, Size counter, Wide* errors) {
  return on_link(__func__, device, link, [&](const Target& target, const Json&) -> int {
    return counter > 4 ? kInvalidArgument : store(target.number("nvlink", "errors"), errors);
  });
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle device, Size link, PciInfo* pci) {
  return on_link(__func__, device, link, [&](const Target& target, const Json& entry_of) -> int {
    const auto remote = remote_bus_id(target.state, entry_of);
    if (pci == nullptr) return kInvalidArgument;
    if (remote.empty()) return kNotSupported;
    *pci = pci_info(remote);
    return kSuccess;
  });
}

int nvmlDeviceGetNvLinkRemotePciInfo(Handle device, Size link, PciInfo* pci) {
  return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Handle device, Size link, Size* type) {
  return on_link(__func__, device, link, [&](const Target& target, const Json& entry_of) -> int {
    constexpr double kGpu = 0, kSwitch = 2;
    const auto remote = remote_bus_id(target.state, entry_of);
    if (remote.empty()) return kNotSupported;
    return store({kSuccess, is_device(target.state, remote) ? kGpu : kSwitch}, type);
  });
}

}  // extern "C"
