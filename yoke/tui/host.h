// yoke/tui/host.h -- reads the data about the machine that the title shows. (The CPU is a device instead.)
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace yoke::tui {

struct Host {
  std::optional<std::array<double, 3>> load;  ///< Averages over 1, 5 and 15 minutes.
  std::optional<int64_t> swap_total_bytes, swap_used_bytes;

  bool operator==(const Host&) const = default;
};

/// Reads the files below `sysroot`. Values that cannot be read are nullopt.
Host read_host(const std::filesystem::path& sysroot);

// The pure parts of read_host().
std::optional<std::array<double, 3>> parse_loadavg(std::string_view text);
/// Parses the swap sizes in /proc/meminfo.
Host parse_meminfo(std::string_view text);

}  // namespace yoke::tui
