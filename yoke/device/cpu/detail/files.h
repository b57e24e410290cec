// yoke/device/cpu/detail/files.h -- parses the files of /proc about processors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

/// Clock ticks of all processors together since boot.
struct CpuTime {
  int64_t busy = 0;
  int64_t total = 0;

  bool operator==(const CpuTime&) const = default;
};

/// Parses the first line of /proc/stat. The time of guests is not added, since the user time includes it. Time spent
/// waiting for a disk counts as idle.
std::optional<CpuTime> parse_cpu_time(std::string_view stat);

/// "AMD EPYC 7A53 64-Core Processor" from the beginning of /proc/cpuinfo; "CPU" if it has no name.
std::string cpu_name(std::string_view cpuinfo);

/// Mean number, over a minute, of processes that run or wait for a disk, from /proc/loadavg.
std::optional<double> parse_load(std::string_view loadavg);

/// The rest of the first line that begins with `name`.
std::optional<std::string_view> find_line(std::string_view text, std::string_view name);

/// {0, 1, 2, 8} -> "0-2,8". REQUIRES: `cpus` is sorted.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace yoke::device
