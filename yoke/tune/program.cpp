#include "yoke/tune/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"

namespace yoke::tune {
namespace {

constexpr std::string_view kPlaceholder = "{}";

std::string read_or_empty(const std::filesystem::path& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return "";
  }
}

/// The number after `name` at the beginning of a line; nullopt if there is none.
std::optional<int64_t> number_of(std::string_view text, std::string_view name) {
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() >= 2 && words[0] == name) return parse_int(words[1]);
  }
  return std::nullopt;
}

/// The smallest rest in the cgroup of this process and those above it.
std::optional<int64_t> available_in_cgroups() {
  std::optional<int64_t> result;
  const auto text = read_or_empty("/proc/self/cgroup");
  for (const auto line : lines_of(text)) {  // "4:memory:/a/b", or "0::/a/b" for v2
    const auto fields = split(line, ':');
    if (fields.size() < 3 || (fields[1] != "memory" && !fields[1].empty())) continue;
    const bool is_v2 = fields[1].empty();
    const std::filesystem::path root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (auto path = std::filesystem::path(fields[2]).relative_path();; path = path.parent_path()) {
      const auto folder = root / path;
      const auto rest =
          available_bytes_of_cgroup(read_or_empty(folder / (is_v2 ? "memory.max" : "memory.limit_in_bytes")),
                                    read_or_empty(folder / (is_v2 ? "memory.current" : "memory.usage_in_bytes")),
                                    read_or_empty(folder / "memory.stat"));
      if (rest) result = std::min(result.value_or(INT64_MAX), *rest);
      if (path.empty()) break;
    }
  }
  return result;
}

}  // namespace

bool has_placeholder(const std::vector<std::string>& argv) {
  return std::ranges::any_of(argv, [](const std::string& word) { return word.find(kPlaceholder) != word.npos; });
}

std::vector<std::string> with_batch(std::vector<std::string> argv, const Handover& handover, int64_t batch) {
  const auto value = std::to_string(batch);
  for (auto& word : argv) {
    for (size_t at = 0; (at = word.find(kPlaceholder, at)) != word.npos; at += value.size()) {
      word.replace(at, kPlaceholder.size(), value);
    }
  }
  if (handover.option.empty()) return argv;
  for (size_t i = 1; i < argv.size(); ++i) {
    if (argv[i].starts_with(handover.option + "=")) {
      argv[i] = handover.option + "=" + value;
      return argv;
    }
    if (argv[i] == handover.option && i + 1 < argv.size()) {
      argv[i + 1] = value;
      return argv;
    }
  }
  argv.push_back(handover.option);
  argv.push_back(value);
  return argv;
}

bool is_out_of_memory(const Ending& ending) {
  if (ending.status == 0) return false;
  constexpr std::array kWords = {"OutOfMemoryError", "out of memory",          "MemoryError",   "std::bad_alloc",
                                 "bad allocation",   "can't allocate memory",  "Out of memory", "OUT_OF_MEMORY",
                                 "ENOMEM",           "Cannot allocate memory", "SIGKILL",       "alloc_failed"};
  return ending.status == 128 + SIGKILL || std::ranges::any_of(kWords, [&](std::string_view words) {
           return ending.output.find(words) != ending.output.npos;
         });
}

std::string describe(const Ending& ending) {
  if (ending.status <= 128) return fmt::format("the program ended with status {}", ending.status);
  return fmt::format("{} ended the program", signal_name(ending.status - 128));
}

std::string last_lines(std::string_view output, int64_t num_lines) {
  auto lines = lines_of(output);
  std::erase_if(lines, [](std::string_view line) { return words_of(line).empty(); });
  if (std::ssize(lines) > num_lines) lines.erase(lines.begin(), lines.end() - num_lines);
  std::string result;
  for (const auto line : lines) result += fmt::format("  {}\n", fit(printable(line), 200));
  return result;
}

int64_t available_bytes_of_meminfo(std::string_view meminfo) {
  return number_of(meminfo, "MemAvailable:").value_or(0) * 1024;
}

std::optional<int64_t> available_bytes_of_cgroup(std::string_view limit, std::string_view usage,
                                                 std::string_view stat) {
  const auto number = [](std::string_view text) {
    const auto words = words_of(text);
    return words.empty() ? std::nullopt : parse_int(words[0]);
  };
  const auto most = number(limit.substr(0, limit.find('\n'))), used = number(usage.substr(0, usage.find('\n')));
  if (!most || !used || *most > (int64_t{1} << 60)) return std::nullopt;  // "max", or v1's largest number
  const auto droppable = number_of(stat, "total_inactive_file").value_or(number_of(stat, "inactive_file").value_or(0));
  return std::max<int64_t>(0, *most - std::max<int64_t>(0, *used - droppable));
}

int64_t available_host_bytes() {
  const auto of_host = available_bytes_of_meminfo(read_or_empty("/proc/meminfo"));
  const auto of_cgroup = available_in_cgroups();
  if (!of_cgroup) return of_host;
  return of_host == 0 ? *of_cgroup : std::min(of_host, *of_cgroup);
}

}  // namespace yoke::tune
