// yoke/device/amdgpu/detail/card.h -- one card as the amdgpu driver describes it in the folder of its PCI device.
// Source: Linux, drivers/gpu/drm/amd/pm/amdgpu_pm.c and Documentation/gpu/amdgpu/
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/device/device.h"

namespace yoke::device::amdgpu {

/// Files that are not there, or that this card's firmware refuses, leave nullopt.
class Card {
 public:
  Card() = default;
  Card(std::filesystem::path folder, std::filesystem::path sysroot);

  /// False once the card has left the bus.
  bool is_there() const;
  /// Reading its sensors would wake it.
  bool is_asleep() const;

  void read_identity(Facts& facts) const;
  void read_details(Facts& facts) const;
  void read_memory(Readings& readings) const;
  void read_basics(Readings& readings) const;
  void read_details(Readings& readings) const;

 private:
  std::optional<int64_t> sensor(std::string_view label, std::string_view what, int64_t divisor) const;
  std::optional<int64_t> power(std::string_view file) const;
  void read_errors(Readings& readings) const;

  std::filesystem::path folder_, sysroot_;
  std::filesystem::path hwmon_;                              ///< Empty: no sensors.
  std::filesystem::path port_;                               ///< Whose PCIe link is the one to the machine.
  std::map<std::string, std::string, std::less<>> sensors_;  ///< "temp edge" -> the beginning of its files' paths.
};

/// "16.0 GT/s PCIe" -> 4
std::optional<int64_t> pcie_generation(std::string_view speed);

/// The highest of pp_dpm_*: lines "1: 1700Mhz *".
std::optional<int64_t> highest_clock_mhz(std::string_view levels);

/// "AMD Instinct MI250X", by a short table of our own or by libdrm's list.
std::optional<std::string> card_name(int64_t device_id, int64_t revision, const std::filesystem::path& sysroot);

/// The name in libdrm's amdgpu.ids, lines "740C,\t01,\tAMD Instinct MI250X / MI250".
std::optional<std::string> find_in_amdgpu_ids(std::string_view text, int64_t device_id, int64_t revision);

}  // namespace yoke::device::amdgpu
