#include "yoke/device/visibility/set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/device/selection.h"
#include "yoke/device/visibility/detail/warnings.h"

namespace yoke::device {
namespace {

struct Chosen {
  std::vector<Unit> nvidia, amd;
};

const Device& device_of(const Unit& unit, const Gpus& gpus) {
  const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
  return unit.instance ? gpu.instances[static_cast<size_t>(*unit.instance)] : gpu;
}

/// Returns "0", or "0:1" for a MIG instance.
std::string id_of(const Unit& unit, const Gpus& gpus) {
  const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
  return unit.instance ? id_of(gpu, device_of(unit, gpus)) : id_of(gpu);
}

/// Returns the unit of `device`, which is one of `gpus` or an instance of one.
std::optional<Unit> unit_of(const Device& device, const Gpus& gpus) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i] == &device) return Unit{static_cast<int64_t>(i), {}};
    for (size_t j = 0; j < gpus[i]->instances.size(); ++j) {
      if (&gpus[i]->instances[j] == &device) return Unit{static_cast<int64_t>(i), static_cast<int64_t>(j)};
    }
  }
  return std::nullopt;
}

Chosen choose(std::string_view selection, const Selections& all, const Snapshot& snapshot) {
  Chosen chosen;
  if (selection.empty()) throw Error(ErrorCode::kInvalidArgument, "no device is named; write `none` to hide them all");
  for (const auto& choice : DeviceSelection::parse({std::string(selection)}).resolve(snapshot)) {
    const auto& device = *choice.device;
    const auto id = choice.id();
    auto* units = device.vendor == Vendor::kAmd ? &chosen.amd : &chosen.nvidia;
    const auto unit = unit_of(device, device.vendor == Vendor::kAmd ? all.amd : all.nvidia);
    if (!unit && device.vendor == Vendor::kAmd) {
      throw Error(ErrorCode::kFailedPrecondition, "device {} is not listed by KFD: programs cannot compute on it", id);
    }
    if (!unit) {
      throw Error(ErrorCode::kInvalidArgument, "device {} is not a GPU, and every program sees it; name GPUs", id);
    }
    if (!unit->instance && is_mig(device)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "device {} is in MIG mode, and programs see only instances of it, of which there are {}; name one{}",
                  id, device.instances.size(),
                  device.instances.empty() ? " when there are some" : ", as " + id_of({unit->device, 0}, all.nvidia));
    }
    if (std::find(units->begin(), units->end(), *unit) != units->end()) {
      throw Error(ErrorCode::kInvalidArgument, "device {} is named twice", id);
    }
    units->push_back(*unit);
  }
  return chosen;
}

std::string numbers(const std::vector<Unit>& units) {
  std::vector<int64_t> result;
  result.reserve(units.size());
  for (const auto& unit : units) result.push_back(unit.device);
  return fmt::format("{}", fmt::join(result, ","));
}

std::string uuids(const std::vector<Unit>& units, const Gpus& gpus) {
  std::vector<std::string> result;
  result.reserve(units.size());
  for (const auto& unit : units) result.push_back(device_of(unit, gpus).facts.uuid);
  return fmt::format("{}", fmt::join(result, ","));
}

std::string nvidia_ids(const std::vector<Unit>& units, const Gpus& gpus, IdFormat format) {
  for (const auto& unit : units) {
    const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
    if (format == IdFormat::kIndex && unit.instance) {
      throw Error(ErrorCode::kInvalidArgument, "MIG instance {} has no number in CUDA; leave --format index out",
                  id_of(unit, gpus));
    }
    if (format == IdFormat::kUuid && device_of(unit, gpus).facts.uuid.empty()) {
      throw Error(ErrorCode::kFailedPrecondition, "device {} did not report its UUID ({}); use --format index",
                  gpu.index, name(gpu.state));
    }
  }
  return format == IdFormat::kIndex ? numbers(units) : uuids(units, gpus);
}

/// Returns UUIDs if each names only one GPU, otherwise numbers. (All partitions of an MI300 have the same UUID.)
std::string amd_ids(const std::vector<Unit>& units, const Gpus& gpus, IdFormat format) {
  const auto text = uuids(units, gpus);
  return format == IdFormat::kUuid && select_rocr(text, gpus).units == units ? text : numbers(units);
}

class Changes {
 public:
  explicit Changes(const Environment& environment) : environment_(environment) {}

  void set(std::string name, std::string value) { assignments.push_back({std::move(name), std::move(value)}); }
  void unset(std::string name) {
    if (environment_.contains(name)) assignments.push_back({std::move(name), std::nullopt});
  }
  /// Sets NVIDIA_VISIBLE_DEVICES to agree with the other variables, if it is set at all. Container runtimes without a
  /// daemon read it from this environment.
  void agree(std::string value) {
    if (environment_.contains("NVIDIA_VISIBLE_DEVICES")) set("NVIDIA_VISIBLE_DEVICES", std::move(value));
  }

  std::vector<Assignment> assignments;

 private:
  const Environment& environment_;
};

/// Throws if a program with the new variables would not see `chosen`.
void verify(const Chosen& chosen, const Environment& environment, const Snapshot& snapshot) {
  const auto all = select_all(environment, snapshot);
  std::vector<Unit> amd;
  for (const auto& unit : all.hip.units) amd.push_back(all.rocr.units[static_cast<size_t>(unit.device)]);
  if (all.cuda.units == chosen.nvidia && amd == chosen.amd) return;
  std::string reason = "the order of the devices differs from the requested one";
  for (const auto& row : visibility(environment, snapshot).devices) {
    const auto hidden = std::ranges::find_if(chosen.nvidia, [&](const Unit& unit) {
      return all.nvidia[static_cast<size_t>(unit.device)]->index == row.index && unit.instance == row.instance;
    });
    if (row.ordinal || hidden == chosen.nvidia.end()) continue;
    reason = fmt::format("device {} stays hidden: {}", id_of(*hidden, all.nvidia), row.reason);
    break;
  }
  throw Error(ErrorCode::kFailedPrecondition, "no program can see these devices together: {}", reason);
}

}  // namespace

std::vector<Assignment> assignments_for(std::string_view selection, IdFormat format, const Environment& environment,
                                        const Snapshot& snapshot) {
  const auto all = select_all(Environment{}, snapshot);
  Changes changes(environment);
  if (selection == "all") {
    changes.unset("CUDA_VISIBLE_DEVICES");
    if (!all.nvidia.empty()) changes.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // the order in which yoke numbers GPUs
    for (const auto* name : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) changes.unset(name);
    changes.agree("all");
    return changes.assignments;
  }
  if (selection == "none") {
    changes.set("CUDA_VISIBLE_DEVICES", "");
    changes.set("ROCR_VISIBLE_DEVICES", "");
    for (const auto* name : {"HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) changes.unset(name);
    changes.agree("none");
    return changes.assignments;
  }
  const auto chosen = choose(selection, all, snapshot);
  if (!all.nvidia.empty()) {
    const auto ids = nvidia_ids(chosen.nvidia, all.nvidia, format);
    changes.set("CUDA_VISIBLE_DEVICES", ids);
    if (format == IdFormat::kIndex) changes.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    changes.agree(ids.empty() ? "none" : ids);
  } else {
    changes.unset("CUDA_VISIBLE_DEVICES");  // HIP would read this variable
  }
  if (!all.amd.empty()) {
    changes.set("ROCR_VISIBLE_DEVICES", amd_ids(chosen.amd, all.amd, format));
    changes.unset("GPU_DEVICE_ORDINAL");
  }
  if (!chosen.amd.empty() && !chosen.nvidia.empty()) {
    // Without HIP_VISIBLE_DEVICES, HIP would read CUDA_VISIBLE_DEVICES. So HIP_VISIBLE_DEVICES is set, and names all
    // GPUs that ROCr shows.
    std::vector<Unit> left(chosen.amd.size());
    for (size_t i = 0; i < left.size(); ++i) left[i].device = static_cast<int64_t>(i);
    changes.set("HIP_VISIBLE_DEVICES", numbers(left));
  } else {
    changes.unset("HIP_VISIBLE_DEVICES");
  }
  auto changed = environment;
  assign(changes.assignments, changed);
  verify(chosen, changed, snapshot);
  return changes.assignments;
}

void assign(const std::vector<Assignment>& assignments, Environment& environment) {
  for (const auto& [name, value] : assignments) {
    if (value) {
      environment.set(name, *value);
    } else {
      environment.erase(name);
    }
  }
}

}  // namespace yoke::device
