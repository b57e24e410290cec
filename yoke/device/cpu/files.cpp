#include "yoke/device/cpu/detail/files.h"

#include <algorithm>
#include <array>

#include "yoke/base/quantity.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::device {

std::optional<std::string_view> find_line(std::string_view text, std::string_view name) {
  for (const auto line : lines_of(text)) {
    if (!line.starts_with(name)) continue;
    const auto begin = line.find_first_not_of(" \t", name.size());
    return begin == line.npos ? std::string_view() : line.substr(begin);
  }
  return std::nullopt;
}

std::optional<CpuTime> parse_cpu_time(std::string_view stat) {
  auto line = find_line(stat, "cpu ");
  if (!line) return std::nullopt;
  enum { kUser, kNice, kSystem, kIdle, kIoWait, kIrq, kSoftIrq, kSteal, kNumTimes };
  std::array<int64_t, kNumTimes> times = {};
  for (auto& time : times) {
    const auto end = std::min(line->find(' '), line->size());
    const auto value = parse_number(line->substr(0, end));
    constexpr int64_t kMost = int64_t{1} << 56;
    if (!value || *value < 0 || *value > kMost) return std::nullopt;
    time = *value;
    line->remove_prefix(std::min(end + 1, line->size()));
  }
  CpuTime result;
  for (const auto time : times) result.total += time;
  result.busy = result.total - times[kIdle] - times[kIoWait];
  return result;
}

std::string cpu_name(std::string_view cpuinfo) {
  for (const auto* key : {"model name", "Model", "cpu"}) {  // x86; ARM boards; POWER
    const auto value = find_line(cpuinfo, key);
    const auto colon = value ? value->find(": ") : value->npos;
    if (!value || colon == value->npos) continue;
    const auto name = value->substr(colon + 2);
    if (const auto last = name.find_last_not_of(' '); last != name.npos) return std::string(name.substr(0, last + 1));
  }
  return "CPU";
}

std::optional<double> parse_load(std::string_view loadavg) {
  const auto load = parse_real(loadavg.substr(0, loadavg.find(' ')));
  return load && *load >= 0 ? load : std::nullopt;
}

}  // namespace yoke::device
