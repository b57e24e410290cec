// yoke/device/selection.h -- finds the devices that a user names by "0,2-3", "0:1", "GPU-4f1a", "amd:0" or "cpu".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::device {

/// A device or MIG instance, and the word by which the user named it.
struct Choice {
  const Device* device = nullptr;
  const Device* parent = nullptr;  ///< The GPU of a MIG instance; null for a device.
  std::string word;                ///< As the user wrote it.

  std::string id() const;  ///< "0", "0:1", "cpu"
};

/// Selects devices by words:
///
///   0, 0-3      devices by their index in `yoke devices`
///   0:1         a MIG instance: the second of device 0
///   amd:0       a device by its position among those of a vendor; also nvidia:0-3
///   GPU-4f1a    a UUID, or a prefix of exactly one device's UUID; also MIG-...
///   c1:00.0     a PCI bus id, in sysfs's form or in NVML's
///   mig         all MIG instances
///   cpu, all
class DeviceSelection {
 public:
  /// Selects everything.
  DeviceSelection() = default;

  /// Parses words. Each word may be a list with commas. Without words, everything is selected.
  /// Errors  kInvalidArgument if a word has none of the forms above.
  static DeviceSelection parse(const std::vector<std::string>& words);

  bool is_everything() const { return terms_.empty(); }

  /// Returns false if the selection cannot name a device of `vendor`, so that the vendor's driver is not needed.
  bool may_name(Vendor vendor) const;
  /// Returns false if the selection cannot name the device at `place`, whose UUID and bus id are not known yet.
  bool may_name(const DevicePlace& place) const;

  /// Returns the devices in the order of the words. A device that two words name appears twice. "Everything" means all
  /// devices, without their instances. The result points into `snapshot`.
  /// Errors  kNotFound, listing what exists; kInvalidArgument if a UUID or bus id fits several devices; kUnavailable if
  ///         a word may name a device that has not answered, or a device of a driver that has not answered.
  std::vector<Choice> resolve(const Snapshot& snapshot) const;

 private:
  struct Term {
    enum class Kind { kAll, kCpu, kMig, kIndex, kInstance, kUuid, kBusId };

    std::string word;
    Kind kind = Kind::kAll;
    std::optional<Vendor> vendor;  ///< If set, indices count among this vendor's devices.
    int64_t first = 0, last = 0;   ///< Indices; for an instance, the index of its GPU.
    int64_t instance = 0;
    std::string text;  ///< The prefix of a UUID, or a bus id in sysfs's form.

    bool operator==(const Term&) const = default;
  };
  class Resolver;

  static Term parse_word(const std::string& word);
  static bool may_name(const Term& term, Vendor vendor);

  std::vector<Term> terms_;
};

/// Returns the only device or MIG instance that `id` names.
/// Errors  those of DeviceSelection; kInvalidArgument if `id` names several devices.
const Device& find_device(const Snapshot& snapshot, std::string_view id);

}  // namespace yoke::device
