#include "yoke/base/sysfs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// Parses a number of up to 64 bits, with its sign. Returns nullopt if the whole `text` is not such a number.
std::optional<int64_t> parse_bits(std::string_view text) {
  if (text.starts_with('-')) return parse_int(text);
  const bool is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (is_hexadecimal) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<std::string> read_beginning(int fd, size_t limit_bytes) {
  std::string text;
  while (text.size() < limit_bytes) {
    const auto before = text.size();
    text.resize(std::min(limit_bytes, std::max<size_t>(4096, 4 * before)));  // one page is almost always enough
    ssize_t count = 0;
    do {
      count = read(fd, text.data() + before, text.size() - before);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return std::nullopt;
    text.resize(before + static_cast<size_t>(count));
    if (count == 0) break;
  }
  return text;
}

std::optional<std::string> read_text(const std::filesystem::path& file, size_t limit_bytes) {
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  auto text = fd ? read_beginning(fd.value(), limit_bytes) : std::nullopt;
  if (text) text->erase(text->find_last_not_of(kSpace) + 1);
  return text;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string text_of(const std::filesystem::path& file) { return read_text(file).value_or(""); }

std::optional<int64_t> read_number(const std::filesystem::path& file) {
  const auto text = read_text(file);
  return text ? parse_number(*text) : std::nullopt;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::ranges::sort(entries);
  return entries;
}

std::vector<std::pair<int64_t, std::filesystem::path>> numbered(const std::filesystem::path& folder,
                                                                std::string_view prefix) {
  std::vector<std::pair<int64_t, std::filesystem::path>> found;
  for (const auto& entry : entries_of(folder)) {
    const auto name = entry.filename().string();
    if (!name.starts_with(prefix)) continue;
    if (const auto number = parse_int(name.substr(prefix.size()))) found.emplace_back(*number, entry);
  }
  std::ranges::sort(found);
  return found;
}

int access_error(const std::filesystem::path& file) {
  return faccessat(AT_FDCWD, file.c_str(), R_OK | W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

std::optional<int64_t> parse_number(std::string_view text) {
  text = trimmed(text, kSpace);
  const auto bits = parse_bits(text);
  return bits && (*bits >= 0 || text.starts_with('-')) ? bits : std::nullopt;
}

std::map<std::string, int64_t, std::less<>> parse_properties(std::string_view text) {
  std::map<std::string, int64_t, std::less<>> properties;
  for (const auto line : lines_of(text)) {
    const auto name_end = line.find_first_of(": \t");
    if (name_end == line.npos || name_end == 0) continue;
    const auto value_begin = line.find_first_not_of(": \t", name_end);
    if (value_begin == line.npos) continue;
    const auto value = line.substr(value_begin, line.find_first_of(kSpace, value_begin) - value_begin);
    if (const auto bits = parse_bits(value)) properties.insert_or_assign(std::string(line.substr(0, name_end)), *bits);
  }
  return properties;
}

std::optional<int64_t> percent(int64_t part, int64_t whole) {
  if (whole <= 0) return std::nullopt;
  return static_cast<int64_t>(std::clamp(100.0 * static_cast<double>(part) / static_cast<double>(whole), 0.0, 100.0));
}

}  // namespace yoke
