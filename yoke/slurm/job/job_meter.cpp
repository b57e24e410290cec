#include "yoke/slurm/job/job_meter.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

/// The number after `key` in a file such as memory.stat.
std::optional<int64_t> find_stat(const std::filesystem::path& file, std::string_view key) {
  const auto numbers = parse_properties(yoke::text_of(file));
  const auto found = numbers.find(key);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

struct ProcessUse {
  int64_t start_ticks = 0;
  double cpu_seconds = 0;  ///< Its own, and that of children for which it has waited.
  int64_t resident_bytes = 0;
};

/// Parses /proc/PID/stat. Source: proc(5).
std::optional<ProcessUse> parse_use(std::string_view stat) {
  const auto end_of_name = stat.rfind(')');
  if (end_of_name == stat.npos) return std::nullopt;
  const auto words = words_of(stat.substr(end_of_name + 1));
  if (words.size() < 22) return std::nullopt;
  const auto field = [&](size_t number) { return parse_int(words[number - 3]).value_or(0); };
  static const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const int64_t page = sysconf(_SC_PAGESIZE);
  return ProcessUse{.start_ticks = field(22),
                    .cpu_seconds = static_cast<double>(field(14) + field(15) + field(16) + field(17)) / ticks,
                    .resident_bytes = field(24) * page};
}

}  // namespace

std::string job_cgroup_of(std::string_view path) {
  bool is_slurm = false, is_below_scope = false;
  size_t begin = 0;
  while (begin < path.size()) {
    const auto slash = path.find('/', begin);
    const auto end = slash == path.npos ? path.size() : slash;
    const auto segment = path.substr(begin, end - begin);
    // Below slurmstepd.scope each folder is a job, except "system", where slurmstepd keeps processes of its own.
    if (is_below_scope) return segment == "system" || segment.empty() ? "" : std::string(path.substr(0, end));
    if (is_slurm && segment.starts_with("job_")) return std::string(path.substr(0, end));
    is_below_scope = segment.ends_with("slurmstepd.scope");
    is_slurm = is_slurm || segment.starts_with("slurm");
    begin = end + 1;
  }
  return "";
}

JobMeter::JobMeter(int64_t job, std::filesystem::path sysroot) : job_(job), sysroot_(std::move(sysroot)) {
  const auto root = sysroot_ / "sys/fs/cgroup";
  const auto text = yoke::text_of(sysroot_ / "proc/self/cgroup");
  for (const auto line : lines_of(text)) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto group = job_cgroup_of(line.substr(second + 1));
    if (group.empty()) continue;
    const auto below = std::filesystem::path(group).relative_path();
    if (controllers.empty() && read_text(root / below / "cpu.stat")) {
      cpu_file_ = root / below / "cpu.stat";
      is_version_2_ = true;
      if (read_text(root / below / "memory.stat")) memory_folder_ = root / below;
    }
    for (const auto controller : split(controllers, ',')) {
      const auto folder = root / controllers / below;
      if (controller == "cpuacct" && read_text(folder / "cpuacct.usage")) cpu_file_ = folder / "cpuacct.usage";
      if (controller == "memory" && read_text(folder / "memory.stat")) memory_folder_ = folder;
    }
  }
}

JobMeter::Reading JobMeter::read() {
  Reading reading;
  if (cpu_file_.empty() || memory_folder_.empty()) reading = read_processes();
  if (!cpu_file_.empty()) {
    reading.cpu_seconds = is_version_2_ ? static_cast<double>(find_stat(cpu_file_, "usage_usec").value_or(0)) / 1e6
                                        : static_cast<double>(read_number(cpu_file_).value_or(0)) / 1e9;
  }
  if (!memory_folder_.empty()) {
    const auto stat = memory_folder_ / "memory.stat";
    reading.memory_bytes = find_stat(stat, is_version_2_ ? "anon" : "total_rss").value_or(0) +
                           find_stat(stat, is_version_2_ ? "shmem" : "total_shmem").value_or(0);
  }
  return reading;
}

std::optional<int64_t> JobMeter::memory_limit_bytes() const {
  if (memory_folder_.empty()) return std::nullopt;
  const auto limit = read_number(memory_folder_ / (is_version_2_ ? "memory.max" : "memory.limit_in_bytes"));
  return limit && *limit < (int64_t{1} << 60) ? limit : std::nullopt;
}

std::string JobMeter::source() const {
  if (cpu_file_.empty() == memory_folder_.empty()) return cpu_file_.empty() ? "processes" : "cgroup";
  return cpu_file_.empty() ? "cgroup (memory), processes (CPU)" : "cgroup (CPU), processes (memory)";
}

std::optional<int64_t> JobMeter::memory_with_files_peak_bytes() const {
  if (memory_folder_.empty()) return std::nullopt;
  return read_number(memory_folder_ / (is_version_2_ ? "memory.peak" : "memory.max_usage_in_bytes"));
}

std::optional<int64_t> JobMeter::num_oom_kills() {
  if (memory_folder_.empty()) return std::nullopt;
  if (is_version_2_) return find_stat(memory_folder_ / "memory.events", "oom_kill");
  // Version 1 counts in the group of the process alone: a job has groups for steps, and these for tasks.
  constexpr int kLevels = 3;
  const auto look = [&](const std::filesystem::path& folder) {
    const auto number = find_stat(folder / "memory.oom_control", "oom_kill");
    if (number) oom_kills_[folder.native()] = *number;
  };
  look(memory_folder_);
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(memory_folder_, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_directory(error)) continue;
    look(at->path());
    if (at.depth() + 1 >= kLevels) at.disable_recursion_pending();
  }
  if (oom_kills_.empty()) return std::nullopt;  // a kernel that does not count
  int64_t sum = 0;
  for (const auto& [_, number] : oom_kills_) sum += number;
  return sum;
}

JobMeter::Reading JobMeter::read_processes() {
  Reading reading;
  std::error_code error;
  for (std::filesystem::directory_iterator at(sysroot_ / "proc", error), end; !error && at != end;
       at.increment(error)) {
    const auto pid = parse_int(at->path().filename().native());
    if (!pid) continue;
    const auto use = parse_use(read_text(at->path() / "stat").value_or(""));
    if (!use || !belongs(*pid, use->start_ticks)) continue;
    reading.cpu_seconds += use->cpu_seconds;
    reading.memory_bytes += use->resident_bytes;
  }
  // The time of a process that nobody has waited for is lost; the sum must not decrease.
  most_cpu_seconds_ = reading.cpu_seconds = std::max(most_cpu_seconds_, reading.cpu_seconds);
  return reading;
}

bool JobMeter::belongs(int64_t pid, int64_t start_ticks) {
  const auto [at, is_new] = known_.try_emplace({pid, start_ticks}, false);
  if (!is_new) return at->second;
  if (known_.size() > 100'000) known_.clear();
  const auto environment = read_text(sysroot_ / fmt::format("proc/{}/environ", pid)).value_or("");
  const auto wanted = fmt::format("SLURM_JOB_ID={}", job_);
  const auto variables = split(environment, '\0');
  const bool is_ours = std::ranges::find(variables, wanted) != variables.end();
  known_[{pid, start_ticks}] = is_ours;
  return is_ours;
}

}  // namespace yoke::slurm
