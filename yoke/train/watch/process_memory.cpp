#include "yoke/train/watch/detail/process_memory.h"

#include <charconv>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::train {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// Parses lines such as "VmRSS:      1234 kB". Returns the sizes in bytes.
std::map<std::string, int64_t, std::less<>> sizes_in(std::string_view text) {
  constexpr int64_t kMaxKibibytes = int64_t{1} << 50;
  std::map<std::string, int64_t, std::less<>> sizes;
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() != 3 || words[2] != "kB" || !words[0].ends_with(':')) continue;
    const auto kibibytes = whole_number(words[1]);
    if (kibibytes && *kibibytes < kMaxKibibytes) {
      sizes.emplace(words[0].substr(0, words[0].size() - 1), *kibibytes * 1024);
    }
  }
  return sizes;
}

std::string text_or_empty(const std::filesystem::path& path) {
  try {
    return read_file(path);
  } catch (const Error&) {  // an old kernel, or a container that hides the file
    return "";
  }
}

std::optional<int64_t> number_in(const std::filesystem::path& path) {
  const auto text = text_or_empty(path);
  const auto words = words_of(text.substr(0, text.find('\n')));
  return words.size() == 1 ? whole_number(words[0]) : std::nullopt;  // the word may be "max"
}

void climb_groups(const std::string& mount, std::string_view path, const std::string& limit_file,
                  const std::string& used_file, std::vector<MemoryGroup>& groups) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.find("/../") != path.npos || path.ends_with("/..")) path = {};  // outside of this cgroup namespace
  for (;;) {
    groups.push_back({mount + std::string(path), limit_file, used_file});
    if (path.empty()) return;
    path = path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

ProcessMemory parse_process_memory(std::string_view status, std::string_view meminfo) {
  const auto of_process = sizes_in(status), of_machine = sizes_in(meminfo);
  const auto size = [](const auto& sizes, std::string_view name) {
    const auto found = sizes.find(name);
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
  ProcessMemory memory;
  memory.resident_bytes = size(of_process, "VmRSS");
  memory.anonymous_bytes = size(of_process, "RssAnon");
  memory.file_bytes = size(of_process, "RssFile");
  memory.shared_bytes = size(of_process, "RssShmem");
  memory.peak_resident_bytes = size(of_process, "VmHWM");
  memory.swapped_bytes = size(of_process, "VmSwap");
  memory.machine_bytes = size(of_machine, "MemTotal");
  memory.machine_available_bytes = size(of_machine, "MemAvailable");
  return memory;
}

std::vector<MemoryGroup> memory_groups(std::string_view cgroup) {
  const std::string mount = "sys/fs/cgroup";
  std::vector<MemoryGroup> groups;
  for (const auto line : lines_of(cgroup)) {  // number:controllers:path
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const auto* folder : {"", "/unified"})
        climb_groups(mount + folder, path, "memory.max", "memory.current", groups);
    }
    for (const auto controller : split(controllers, ',')) {
      if (controller != "memory") continue;
      climb_groups(mount + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", groups);
    }
  }
  return groups;
}

ProcessMemory read_process_memory(const std::filesystem::path& root) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // without a limit, cgroup version 1 reports almost 2^63
  auto memory = parse_process_memory(text_or_empty(root / "proc/self/status"), text_or_empty(root / "proc/meminfo"));
  for (const auto& group : memory_groups(text_or_empty(root / "proc/self/cgroup"))) {
    const auto limit = number_in(root / group.folder / group.limit_file);
    if (!limit || *limit >= kUnlimited || (memory.limit_bytes && *memory.limit_bytes <= *limit)) continue;
    memory.limit_bytes = limit;
    memory.limit_used_bytes = number_in(root / group.folder / group.used_file);
  }
  return memory;
}

}  // namespace yoke::train
