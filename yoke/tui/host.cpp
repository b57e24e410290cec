#include "yoke/tui/host.h"

#include <charconv>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::tui {

std::optional<std::array<double, 3>> parse_loadavg(std::string_view text) {
  const auto words = words_of(text);
  std::array<double, 3> load = {};
  if (words.size() < load.size()) return {};
  for (size_t i = 0; i < load.size(); ++i) {
    const auto result = std::from_chars(words[i].begin(), words[i].end(), load[i]);
    if (result.ec != std::errc() || !(load[i] >= 0)) return {};
  }
  return load;
}

Host parse_meminfo(std::string_view text) {
  const auto numbers = parse_properties(text);
  const auto total = numbers.find("SwapTotal"), free = numbers.find("SwapFree");
  if (total == numbers.end() || free == numbers.end()) return {};
  if (free->second < 0 || free->second > total->second) return {};
  return {
      .load = {}, .swap_total_bytes = total->second * 1024, .swap_used_bytes = (total->second - free->second) * 1024};
}

Host read_host(const std::filesystem::path& sysroot) {
  auto host = parse_meminfo(text_of(sysroot / "proc/meminfo"));
  host.load = parse_loadavg(text_of(sysroot / "proc/loadavg"));
  return host;
}

}  // namespace yoke::tui
