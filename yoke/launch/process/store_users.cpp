#include "yoke/launch/process/store_users.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "yoke/base/text.h"
#include "yoke/launch/process/descendants.h"

namespace yoke::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

std::optional<uint64_t> to_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string text_of_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<std::string> name_in_file(uid_t uid) {
  const auto users = text_of_file("/etc/passwd"), number = std::to_string(uid);
  for (const auto line : lines_of(users)) {
    const auto fields = split(line, ':');
    if (fields.size() > 2 && fields[2] == number) return std::string(fields[0]);
  }
  return std::nullopt;
}

/// How /etc/subuid may name this process's user.
std::vector<std::string> own_names() {
  std::vector<std::string> names = {std::to_string(geteuid())};
  for (const auto* variable : {"USER", "LOGNAME"}) {
    if (const char* value = std::getenv(variable)) names.emplace_back(value);
  }
  if (const auto name = name_in_file(geteuid())) names.push_back(*name);
  return names;
}

}  // namespace

bool is_subordinate(uid_t uid, const std::vector<std::string>& names, std::string_view text) {
  return std::ranges::any_of(lines_of(text), [&](std::string_view line) {  // subuid(5): NAME:FIRST:COUNT
    const auto fields = split(line, ':');
    if (fields.size() != 3 || std::ranges::find(names, fields[0]) == names.end()) return false;
    const auto first = to_number(fields[1]), count = to_number(fields[2]);
    return first && count && uid >= *first && uid - *first < *count;
  });
}

std::string name_and_uid(uid_t uid) {
  const auto name = name_in_file(uid);
  return name ? fmt::format("{} (uid {})", printable(*name), uid) : fmt::format("uid {}", uid);
}

bool StoreUsers::may_use(uid_t uid) {
  if (uid == geteuid() || uid == getuid() || uid == 0) return true;
  const auto now = Clock::now();
  if (uid == refused_ && now - refused_at_ < kBetweenLooks) return false;
  if (is_subordinate(uid, own_names(), text_of_file("/etc/subuid"))) return true;
  for (const auto& process : descendants_of(job_)) {
    struct stat status {};
    if (stat(fmt::format("/proc/{}", process.pid).c_str(), &status) == 0 && status.st_uid == uid) return true;
  }
  refused_ = uid;
  refused_at_ = now;
  return false;
}

}  // namespace yoke::launch
