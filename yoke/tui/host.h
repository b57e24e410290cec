// yoke/tui/host.h -- what the machine's line shows beside the CPU, which is a device.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace yoke::tui {

struct Host {
  std::optional<std::array<double, 3>> load;  ///< Of 1, 5 and 15 minutes.
  std::optional<int64_t> swap_total_bytes, swap_used_bytes;

  bool operator==(const Host&) const = default;
};

/// Below `sysroot`, now. What cannot be read is nullopt.
Host read_host(const std::filesystem::path& sysroot);

// The parts without a machine.
std::optional<std::array<double, 3>> parse_loadavg(std::string_view text);
/// Swap alone. Of /proc/meminfo.
Host parse_meminfo(std::string_view text);

}  // namespace yoke::tui
