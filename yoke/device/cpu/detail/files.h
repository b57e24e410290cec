// yoke/device/cpu/detail/files.h -- parses the files of /proc about processors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::device {

/// Clock ticks of all CPUs together since boot.
struct CpuTime {
  int64_t busy = 0;
  int64_t total = 0;

  bool operator==(const CpuTime&) const = default;
};

/// Parses the first line of /proc/stat. Guest time is not added, because it is part of user time. Time spent waiting
/// for a disk counts as idle.
std::optional<CpuTime> parse_cpu_time(std::string_view stat);

/// Returns the CPU's name, such as "AMD EPYC 7A53 64-Core Processor", from /proc/cpuinfo, or "CPU" if it has none.
std::string cpu_name(std::string_view cpuinfo);

/// Parses /proc/loadavg: the mean number, over a minute, of processes that run or wait for a disk.
std::optional<double> parse_load(std::string_view loadavg);

/// Returns the rest of the first line that begins with `name`.
std::optional<std::string_view> find_line(std::string_view text, std::string_view name);

}  // namespace yoke::device
