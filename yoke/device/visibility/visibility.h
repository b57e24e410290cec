// yoke/device/visibility/visibility.h -- determines which devices a program started here would see, in which order, and
// why.
//
// Pure functions of devices and environment variables: CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER,
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
  kDuplicate,   ///< Names a device that an earlier entry names; the consequence depends on the vendor.
  kInvalid,     ///< Does not have a valid form.
  kOutOfRange,  ///< No device has this number or UUID.
  kAmbiguous,   ///< Several UUIDs begin with this text.
  kUnusable,    ///< Names a GPU that programs cannot use in its present mode (MIG).
  kIgnored,     ///< Read, but without effect.
  kCancelled,   ///< Would be visible if another entry did not hide every device.
  kNotRead,     ///< Comes after the entry that ends the list.
  kUnknown,     ///< Names a device of a vendor whose devices are not known here.
};
std::string_view name(Verdict verdict);  ///< "visible", "out of range", "not read"...

/// A device as programs count devices: a whole device, a MIG instance or a tile.
struct Unit {
  int64_t device = 0;               ///< Position among the devices of its vendor.
  std::optional<int64_t> instance;  ///< Position of a MIG instance (NVIDIA) or tile (Intel); nullopt if whole.

  auto operator<=>(const Unit&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 in it
};

/// One element of a variable's list.
struct Entry {
  std::string text;  ///< The entry's text; any bytes.
  Verdict verdict = Verdict::kVisible;
  std::optional<Unit> unit;  ///< The unit that the entry names, visible or not.
  std::string why;           ///< An explanation for people: part of a sentence.
  bool is_certain = true;    ///< False if the vendor's rules or the order of devices are not known.

  bool operator==(const Entry&) const = default;
};

struct Variable {
  std::string name;
  std::string value;
  bool has_effect = false;  ///< Whether the variable changes what programs started here see.
  std::string effect;       ///< What the variable does, or why it does nothing.
  std::vector<Entry> entries;
};

/// A device or MIG instance, and whether programs see it.
struct DeviceVisibility {
  int64_t index = 0;                ///< Device::index
  std::optional<int64_t> instance;  ///< Position in Device::instances.
  Vendor vendor = Vendor::kNvidia;
  std::string id;                  ///< As in `yoke devices`: "0", "0:1".
  std::optional<int64_t> ordinal;  ///< The number that programs of its vendor's runtime use; nullopt if hidden.
  bool is_certain = true;          ///< Whether its place in the order is certain.
  std::string reason;              ///< Why it is hidden.
};

struct Visibility {
  std::vector<DeviceVisibility> devices;  ///< Visible devices in the order of programs, then hidden ones.
  std::vector<Variable> variables;        ///< The variables that are set.
  std::vector<std::string> warnings;      ///< One sentence per contradiction or pitfall, with what to do.
};

/// Determines which GPUs of `snapshot` a program with this `environment` sees. The CPU is not included.
Visibility visibility(const Environment& environment, const Snapshot& snapshot);

/// Whether a program sees several MIG devices, and whole GPUs beside them. If not, it sees one MIG device alone.
bool shows_several_mig_devices(const Snapshot& snapshot);

/// Returns only the warnings: variables that contradict each other or do not do what they seem to do.
std::vector<std::string> contradictions(const Environment& environment, const Snapshot& snapshot);

}  // namespace yoke::device
