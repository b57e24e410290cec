#include "yoke/device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::device {
namespace {

/// "00000000:C1:00.0" and "c1:00.0" mean "0000:c1:00.0".
std::string normal_bus_id(std::string_view text) {
  std::string id(text);
  std::transform(id.begin(), id.end(), id.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto colon = id.find(':');
  if (colon == 2) return "0000:" + id;
  return colon == 8 && id.starts_with("0000") ? id.substr(4) : id;
}

bool has_beginning(std::string_view uuid, std::string_view beginning) {
  return beginning.size() >= 5 && uuid.starts_with(beginning);  // more than "GPU-" or "MIG-"
}

}  // namespace

std::string_view name(Vendor vendor) {
  switch (vendor) {
    case Vendor::kNvidia: return "nvidia";
    case Vendor::kAmd: return "amd";
    case Vendor::kCpu: return "cpu";
  }
  return "";
}

std::string_view name(State state) {
  switch (state) {
    case State::kFree: return "free";
    case State::kBusy: return "busy";
    case State::kLost: return "lost";
    case State::kNoAnswer: return "no answer";
    case State::kNoPermission: return "no permission";
    case State::kError: return "error";
  }
  return "";
}

std::string id_of(const Device& device) {
  return device.vendor == Vendor::kCpu ? "cpu" : fmt::format("{}", device.index);
}

const Device& find_device(const Snapshot& snapshot, std::string_view id) {
  std::vector<const Device*> matches;
  std::vector<std::string> known;
  const auto bus_id = normal_bus_id(id);
  for (const auto& device : snapshot.devices) {
    known.push_back(id_of(device));
    if (known.back() == id || (!device.facts.pci_bus_id.empty() && device.facts.pci_bus_id == bus_id)) return device;
    if (has_beginning(device.facts.uuid, id)) matches.push_back(&device);
    for (const auto& instance : device.instances) {
      known.push_back(fmt::format("{}:{}", device.index, instance.index));
      if (known.back() == id) return instance;
      if (has_beginning(instance.facts.uuid, id)) matches.push_back(&instance);
    }
  }
  if (matches.size() == 1) return *matches[0];
  if (matches.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "device `{}`: {} devices have a UUID that begins so; give more of it", id,
                matches.size());
  }
  throw Error(ErrorCode::kNotFound, "there is no device `{}` here; there are: {}", id, fmt::join(known, ", "));
}

State state_by_use(const Device& device) {
  int64_t accounted_bytes = 0;
  for (const auto& process : device.processes) {
    if (process.type != "graphics") return State::kBusy;
    accounted_bytes += process.memory_bytes.value_or(0);
  }
  constexpr int64_t kHeld = int64_t{1} << 30;
  if (device.readings.memory_used_bytes.value_or(0) - accounted_bytes > kHeld) return State::kBusy;
  const auto is_busy = [](const Device& instance) { return instance.state == State::kBusy; };
  return std::any_of(device.instances.begin(), device.instances.end(), is_busy) ? State::kBusy : State::kFree;
}

}  // namespace yoke::device
