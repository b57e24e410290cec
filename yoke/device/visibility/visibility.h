// yoke/device/visibility/visibility.h -- which devices a program started here would see, in which order, and why.
//
// Pure functions of environment variables and devices: CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER,
// NVIDIA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL, and ZE_AFFINITY_MASK with
// ZE_FLAT_DEVICE_HIERARCHY. docs/visible.md has the rules and their sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/device.h"

namespace yoke::device {

enum class Verdict {
  kVisible,
  kDuplicate,   ///< Names a device a second time; what follows from that differs between vendors.
  kInvalid,     ///< Not of the form that is read.
  kOutOfRange,  ///< A number or UUID that no device has.
  kAmbiguous,   ///< The beginning of several UUIDs.
  kUnusable,    ///< Names a GPU that programs cannot use as it is (MIG mode).
  kIgnored,     ///< Read, and without effect.
  kCancelled,   ///< Would be visible, but for another entry that hides every device.
  kNotRead,     ///< After the end of the list.
  kUnknown,     ///< Names a device of a vendor whose devices are not known here.
};
std::string_view name(Verdict verdict);  ///< "visible", "out of range", "not read"...

/// What a program counts as one device.
struct Unit {
  int64_t device = 0;               ///< Position among the devices of its vendor.
  std::optional<int64_t> instance;  ///< Position of the MIG instance (NVIDIA) or tile (Intel) in it; else all of it.

  auto operator<=>(const Unit&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 in it
};

/// One element of a variable's list.
struct Entry {
  std::string text;  ///< As written; any bytes.
  Verdict verdict = Verdict::kVisible;
  std::optional<Unit> unit;  ///< What it names, visible or not.
  std::string why;           ///< Half a sentence for people.
  bool is_certain = true;    ///< False where the vendor's rules, or the order of devices, are not known.

  bool operator==(const Entry&) const = default;
};

struct Variable {
  std::string name;
  std::string value;
  bool has_effect = false;  ///< On what programs started here see.
  std::string effect;       ///< What it does, or why nothing.
  std::vector<Entry> entries;
};

/// A device or MIG instance, and whether programs see it.
struct DeviceVisibility {
  int64_t index = 0;                ///< Device::index
  std::optional<int64_t> instance;  ///< Position in Device::instances.
  Vendor vendor = Vendor::kNvidia;
  std::optional<int64_t> ordinal;  ///< The number that programs of its vendor's runtime use; nullopt: hidden.
  bool is_certain = true;          ///< Of its place in the order.
  std::string reason;              ///< Why it is hidden.
};

struct Visibility {
  std::vector<DeviceVisibility> devices;  ///< The visible ones in the order programs enumerate them, then the hidden.
  std::vector<Variable> variables;        ///< Those that are set.
  std::vector<std::string> warnings;      ///< Contradictions and traps, a sentence each, with what to do.
};

/// What programs with `environment` see of the GPUs in `snapshot`. The CPU is not a part of it.
Visibility visibility(const Environment& environment, const Snapshot& snapshot);

/// Its warnings: variables that contradict each other or do not do what they seem to.
std::vector<std::string> contradictions(const Environment& environment, const Snapshot& snapshot);

}  // namespace yoke::device
