// yoke/device/selection.h -- which devices a user means: the one reader of "0,2-3", "0:1", "GPU-4f1a", "amd:0", "cpu".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::device {

/// A device, or a MIG instance, that a word names.
struct Choice {
  const Device* device = nullptr;
  const Device* parent = nullptr;  ///< Of an instance its GPU, else null.
  std::string word;                ///< As the user wrote it.

  std::string id() const;  ///< "0", "0:1", "cpu"
};

/// Words and what they name:
///
///   0, 0-3      devices by their index in `yoke devices`
///   0:1         a MIG instance: the second of device 0
///   amd:0       a device by its position among those of a vendor; nvidia:0-3
///   GPU-4f1a    a UUID or a beginning of it that one device alone has; MIG-...
///   c1:00.0     a PCI bus id, in sysfs's form or in NVML's
///   mig         all MIG instances
///   cpu, all
class DeviceSelection {
 public:
  /// Everything.
  DeviceSelection() = default;

  /// Each word may be a list with commas. No word: everything.
  /// Errors  kInvalidArgument: a word that can name no device.
  static DeviceSelection parse(const std::vector<std::string>& words);

  bool is_everything() const { return terms_.empty(); }

  /// False when nothing of that vendor can be meant: its driver need not be asked.
  bool may_name(Vendor vendor) const;
  /// The same of one device, whose UUID and bus id are not known yet.
  bool may_name(const DevicePlace& place) const;

  /// In the order of the words; what two words name is there twice. Everything: all devices, without their instances.
  /// Points into `snapshot`.
  /// Errors  kNotFound with what there is; kInvalidArgument when a UUID or bus id fits several; kUnavailable when a
  ///         device or driver that has not answered might be meant.
  std::vector<Choice> resolve(const Snapshot& snapshot) const;

 private:
  struct Term {
    enum class Kind { kAll, kCpu, kMig, kIndex, kInstance, kUuid, kBusId };

    std::string word;
    Kind kind = Kind::kAll;
    std::optional<Vendor> vendor;  ///< Indices count within it.
    int64_t first = 0, last = 0;   ///< Indices; of an instance that of its GPU.
    int64_t instance = 0;
    std::string text;  ///< A beginning of a UUID, or a bus id in sysfs's form.

    bool operator==(const Term&) const = default;
  };
  class Resolver;

  static Term parse_word(const std::string& word);
  static bool may_name(const Term& term, Vendor vendor);

  std::vector<Term> terms_;
};

/// The one device or MIG instance that `id` names.
/// Errors  of DeviceSelection; kInvalidArgument when it names several.
const Device& find_device(const Snapshot& snapshot, std::string_view id);

}  // namespace yoke::device
