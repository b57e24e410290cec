#include "yoke/storage/mount_table.h"

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::storage {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

/// The kernel writes spaces, tabs, line feeds, '#' and backslashes as \040 and so on.
std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 3 < text.size() && text[i + 1] <= '3' && is_octal(text[i + 1]) &&
                           is_octal(text[i + 2]) && is_octal(text[i + 3]);
    if (!is_escape) {
      result += text[i];
      continue;
    }
    result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return result;
}

std::optional<Mount> parse_mount(std::string_view line) {
  const auto words = split(line, ' ');
  // Any number of optional fields precede the word "-".
  const auto dash = words.size() < 7 ? words.end() : std::find(words.begin() + 6, words.end(), "-");
  if (words.end() - dash < 3) return std::nullopt;
  const auto id = parse_int(words[0]), parent = parse_int(words[1]);
  const auto colon = words[2].find(':');
  if (!id || !parent || colon == words[2].npos) return std::nullopt;
  const auto major = parse_int(words[2].substr(0, colon)), minor = parse_int(words[2].substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return Mount{.id = *id,
               .major = *major,
               .minor = *minor,
               .root = unescaped(words[3]),
               .point = unescaped(words[4]),
               .options = unescaped(words[5]),
               .type = unescaped(dash[1]),
               .source = unescaped(dash[2]),
               .super_options = words.end() - dash > 3 ? unescaped(dash[3]) : ""};
}

}  // namespace

std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  for (const auto line : lines_of(text)) {
    if (auto mount = parse_mount(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

std::vector<Mount> read_mounts() { return parse_mountinfo(read_file("/proc/self/mountinfo")); }

bool is_within(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

const Mount* mount_of(const std::vector<Mount>& mounts, const std::filesystem::path& path) {
  const Mount* best = nullptr;
  for (const auto& mount : mounts) {
    if (!is_within(path.native(), mount.point)) continue;
    if (best == nullptr || mount.point.size() >= best->point.size()) best = &mount;
  }
  return best;
}

std::optional<std::string> option_value(std::string_view options, std::string_view name) {
  for (const auto option : split(options, ',')) {
    if (option.size() > name.size() && option.starts_with(name) && option[name.size()] == '=') {
      return std::string(option.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace yoke::storage
