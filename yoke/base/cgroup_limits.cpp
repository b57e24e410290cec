#include "yoke/base/cgroup_limits.h"

#include <algorithm>
#include <functional>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

/// Returns nullopt if the file is missing or contains "max" or -1.
std::optional<int64_t> limit_in(const fs::path& path) {
  const auto number = read_number(path);
  return number && *number >= 0 ? number : std::nullopt;
}

template <typename T>
void lower(std::optional<T>& least, const std::optional<T>& limit) {
  if (limit && (!least || *limit < *least)) least = limit;
}

std::optional<double> cpus_of(const std::optional<int64_t>& quota, const std::optional<int64_t>& period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// Takes a group's limit into account. Used memory does not include cached files that were not used lately, because
/// the kernel drops them as soon as memory is needed.
void lower_memory(const std::optional<int64_t>& limit, const fs::path& used, const fs::path& stat, const char* files,
                  CgroupLimits& limits) {
  if (!limit) return;
  auto used_bytes = read_number(used);
  const auto parts = parse_properties(read_text(stat).value_or(""));
  if (const auto droppable = parts.find(files); used_bytes && droppable != parts.end()) {
    used_bytes = std::max<int64_t>(0, *used_bytes - droppable->second);
  }
  if (used_bytes) lower(limits.memory_left_bytes, std::optional(std::max<int64_t>(0, *limit - *used_bytes)));
  if (limits.memory_bytes && *limits.memory_bytes <= *limit) return;
  limits.memory_bytes = limit;
  limits.memory_used_bytes = used_bytes;
}

void lower_processes(const fs::path& group, CgroupLimits& limits) {
  const auto most = limit_in(group / "pids.max");
  if (!most || (limits.max_processes && *limits.max_processes <= *most)) return;
  limits.max_processes = most;
  limits.num_processes = limit_in(group / "pids.current");
}

void count_kills(const fs::path& file, CgroupLimits& limits) {
  const auto counts = parse_properties(read_text(file).value_or(""));
  const auto kills = counts.find("oom_kill");
  if (kills != counts.end()) limits.num_out_of_memory_kills = std::max(limits.num_out_of_memory_kills, kills->second);
}

std::optional<double> cpus_of_v2(const fs::path& group) {
  const auto text = read_text(group / "cpu.max");
  const auto space = text ? text->find(' ') : std::string::npos;
  if (space == std::string::npos) return std::nullopt;
  return cpus_of(parse_number(text->substr(0, space)), parse_number(text->substr(space + 1)));
}

std::optional<double> cpus_of_v1(const fs::path& group) {
  return cpus_of(limit_in(group / "cpu.cfs_quota_us"), limit_in(group / "cpu.cfs_period_us"));
}

void read_v2(const fs::path& group, CgroupLimits& limits) {
  lower(limits.cpus, cpus_of_v2(group));
  lower_memory(limit_in(group / "memory.max"), group / "memory.current", group / "memory.stat", "inactive_file",
               limits);
  lower_processes(group, limits);
  count_kills(group / "memory.events", limits);
}

void read_v1(const std::string& controller, const fs::path& group, CgroupLimits& limits) {
  if (controller == "cpu") {
    lower(limits.cpus, cpus_of_v1(group));
  } else if (controller == "memory") {
    constexpr int64_t kUnlimited = int64_t{1} << 60;  // without a limit the kernel writes almost 2^63
    const auto limit = limit_in(group / "memory.limit_in_bytes");
    if (limit && *limit < kUnlimited) {
      lower_memory(limit, group / "memory.usage_in_bytes", group / "memory.stat", "total_inactive_file", limits);
    }
    count_kills(group / "memory.oom_control", limits);
  } else if (controller == "pids") {
    lower_processes(group, limits);
  }
}

/// Calls `visit` for the group at `path` below `mount` and for all its ancestors. In a container, `path` may be a path
/// of the host that does not exist below `mount`. Then `mount` itself is the group of this process.
void climb(const fs::path& mount, const std::string& path, const std::function<void(const fs::path&)>& visit) {
  auto group = (mount / fs::path(path).relative_path()).lexically_normal();
  while (group.string().starts_with(mount.string() + "/")) {
    visit(group);
    group = group.parent_path();
  }
  visit(mount);
}

/// Visits the control groups of a process: calls `read_v2(group)` for cgroup version 2, and `read_v1(controller,
/// group)` for version 1.
void visit_groups(const fs::path& sysroot, const std::string& process,
                  const std::function<void(const fs::path&)>& read_v2,
                  const std::function<void(const std::string&, const fs::path&)>& read_v1) {
  const auto mount = (sysroot / "sys/fs/cgroup").lexically_normal();
  const auto groups = read_text(sysroot / "proc" / process / "cgroup").value_or("");
  for (const auto line : lines_of(groups)) {  // number:controllers:path
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      for (const auto& folder : {mount, mount / "unified"}) {
        climb(folder, path, read_v2);
      }
      continue;
    }
    for (const auto name : split(controllers, ',')) {
      for (const auto& folder : {mount / name, mount / controllers}) {
        climb(folder, path, [&](const fs::path& group) { read_v1(std::string(name), group); });
      }
    }
  }
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& sysroot, const std::string& process) {
  CgroupLimits limits;
  visit_groups(
      sysroot, process, [&](const fs::path& group) { read_v2(group, limits); },
      [&](const std::string& controller, const fs::path& group) { read_v1(controller, group, limits); });
  return limits;
}

int64_t available_memory_bytes(const fs::path& sysroot) {
  const auto of_machine = parse_properties(text_of(sysroot / "proc/meminfo"));
  const auto free = of_machine.find("MemAvailable");
  const auto in_cgroups = read_cgroup_limits(sysroot).memory_left_bytes;
  if (free == of_machine.end()) return in_cgroups.value_or(0);
  return std::min(free->second * 1024, in_cgroups.value_or(INT64_MAX));
}

std::optional<double> read_cgroup_cpus(const fs::path& sysroot) {
  std::optional<double> cpus;
  visit_groups(
      sysroot, "self", [&](const fs::path& group) { lower(cpus, cpus_of_v2(group)); },
      [&](const std::string& controller, const fs::path& group) {
        if (controller == "cpu") lower(cpus, cpus_of_v1(group));
      });
  return cpus;
}

}  // namespace yoke
