// yoke/device/cpu/detail/files.h -- what /proc says about processors, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

/// Clock ticks of all processors together since the start.
struct CpuTime {
  int64_t busy = 0;
  int64_t total = 0;

  bool operator==(const CpuTime&) const = default;
};

/// The first line of /proc/stat. Guests' time is a part of the time of their hosts, waiting for a disk is idle.
std::optional<CpuTime> parse_cpu_time(std::string_view stat);

/// "AMD EPYC 7A53 64-Core Processor" from the beginning of /proc/cpuinfo; "CPU" where it tells no name.
std::string cpu_name(std::string_view cpuinfo);

/// Mean over a minute of processes that run or wait for a disk, from /proc/loadavg.
std::optional<double> parse_load(std::string_view loadavg);

/// What follows `name` at the beginning of a line.
std::optional<std::string_view> find_line(std::string_view text, std::string_view name);

/// {0, 1, 2, 8} -> "0-2,8". REQUIRES: in order.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace yoke::device
