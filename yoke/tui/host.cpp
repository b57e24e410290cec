#include "yoke/tui/host.h"

#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::tui {
namespace {

std::string_view trim_front(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

/// Returns the number in a line "KEY:    123 kB", converted to bytes.
std::optional<int64_t> kibibytes(std::string_view text, std::string_view key) {
  for (auto line : lines_of(text)) {
    if (!line.starts_with(key) || line.substr(key.size()).substr(0, 1) != ":") continue;
    line = trim_front(line.substr(key.size() + 1));
    int64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec != std::errc() || value < 0) return {};
    return value;
  }
  return {};
}

std::string read_or_empty(const std::filesystem::path& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::optional<std::array<double, 3>> parse_loadavg(std::string_view text) {
  std::array<double, 3> load = {};
  for (auto& value : load) {
    text = trim_front(text);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || !(value >= 0)) return {};
    text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  }
  return load;
}

Host parse_meminfo(std::string_view text) {
  const auto total = kibibytes(text, "SwapTotal"), free = kibibytes(text, "SwapFree");
  if (!total || !free || *free > *total) return {};
  return {.load = {}, .swap_total_bytes = *total * 1024, .swap_used_bytes = (*total - *free) * 1024};
}

Host read_host(const std::filesystem::path& sysroot) {
  auto host = parse_meminfo(read_or_empty(sysroot / "proc/meminfo"));
  host.load = parse_loadavg(read_or_empty(sysroot / "proc/loadavg"));
  return host;
}

}  // namespace yoke::tui
