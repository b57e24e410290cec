// yoke/device/amdgpu/detail/card.h -- reads one card from the amdgpu driver's files in the card's sysfs folder.
// Source: Linux, drivers/gpu/drm/amd/pm/amdgpu_pm.c and Documentation/gpu/amdgpu/
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::device::amdgpu {

/// The sensors and properties of a card. A value is nullopt if its file is missing or the card's firmware refuses it.
class Card {
 public:
  Card() = default;
  Card(std::filesystem::path folder, std::filesystem::path sysroot);

  /// Returns whether the card is still on the bus.
  bool is_there() const;
  /// Returns whether the card sleeps. Reading the sensors of a sleeping card would wake it.
  bool is_asleep() const;

  void read_identity(Facts& facts) const;
  void read_details(Facts& facts) const;
  void read_memory(Readings& readings) const;
  /// For a GPU in a processor: the memory that its programs get, which is the larger of the memory that the firmware
  /// set aside for it and the part of the machine's memory that the driver lets it use (GTT).
  /// Source: amdgpu_ttm.c, apu_prefer_gtt.
  void read_unified_memory(Readings& readings) const;
  /// Returns whether the card is divided into partitions, as far as it tells.
  bool is_divided() const;
  void read_basics(Readings& readings) const;
  void read_details(Readings& readings) const;

 private:
  std::optional<int64_t> sensor(std::string_view label, std::string_view what, int64_t divisor) const;
  std::optional<int64_t> power(std::string_view file) const;
  void read_memory_of(std::string_view kind, Readings& readings) const;
  void read_errors(Readings& readings) const;

  std::filesystem::path folder_, sysroot_;
  std::filesystem::path hwmon_;  ///< Empty if the card has no sensors.
  std::filesystem::path port_;   ///< The sysfs folder of the bridge or device whose PCIe link leads to the machine.
  std::map<std::string, std::string, std::less<>> sensors_;  ///< "temp edge" -> the prefix of its files.
};

/// Returns the generation for a link speed: 4 for "16.0 GT/s PCIe".
std::optional<int64_t> pcie_generation(std::string_view speed);

/// Returns the highest clock in a pp_dpm_* file, whose lines are like "1: 1700Mhz *".
std::optional<int64_t> highest_clock_mhz(std::string_view levels);

/// Returns a name such as "AMD Instinct MI250X" from a built-in table or from libdrm's list.
std::optional<std::string> card_name(int64_t device_id, int64_t revision, const std::filesystem::path& sysroot);

/// Returns the name in libdrm's amdgpu.ids, whose lines are like "740C,\t01,\tAMD Instinct MI250X / MI250".
std::optional<std::string> find_in_amdgpu_ids(std::string_view text, int64_t device_id, int64_t revision);

}  // namespace yoke::device::amdgpu
