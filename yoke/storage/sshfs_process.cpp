#include "yoke/storage/detail/sshfs_process.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"
#include "yoke/device/process/signal.h"

namespace yoke::storage {
namespace {

namespace fs = std::filesystem;

/// The target of a link in /proc; empty if it may not be read. Does not look at the file that it names.
std::string target_of(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).string();
}

std::vector<fs::path> descriptors_of(int64_t pid) { return entries_of(fmt::format("/proc/{}/fd", pid)); }

/// Whether the words of a process name a mount, for kernels that do not say whose connection it has open.
bool names_mount(int64_t pid, const RemoteMount& mount) {
  const auto words = argv_of(pid);
  const auto has = [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); };
  return has(mount.mount.source) && has(mount.mount.point);
}

bool serves(int64_t pid, const RemoteMount& mount) {
  for (const auto& fd : descriptors_of(pid)) {
    if (target_of(fd) != "/dev/fuse") continue;
    const auto info = text_of(fs::path(fmt::format("/proc/{}/fdinfo/{}", pid, fd.filename().string())));
    const auto values = parse_properties(info);
    const auto connection = values.find("fuse_connection");
    if (connection != values.end() ? connection->second == mount.mount.minor : names_mount(pid, mount)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> argv_of(int64_t pid) {
  std::vector<std::string> argv;
  const auto text = text_of(fs::path(fmt::format("/proc/{}/cmdline", pid)));
  for (const auto word : split_terminated(text, '\0')) argv.emplace_back(word);
  return argv;
}

void find_processes(std::vector<RemoteMount>& mounts) {
  if (mounts.empty()) return;
  for (const auto& [pid, folder] : numbered("/proc")) {
    if (fs::path(target_of(folder / "exe")).filename() != "sshfs") continue;
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) continue;
    for (auto& mount : mounts) {
      if (mount.process || mount.uid != int64_t{status.st_uid} || !serves(pid, mount)) continue;
      const auto info = device::describe_process(pid);
      if (info.start_ticks) mount.process = SshfsProcess{pid, *info.start_ticks, info.started_at};
    }
  }
}

std::vector<MountUser> users_of(const std::string& point) {
  std::vector<MountUser> users;
  for (const auto& [pid, folder] : numbered("/proc")) {
    auto links = descriptors_of(pid);
    for (const char* name : {"cwd", "root", "exe"}) links.push_back(folder / name);
    const bool uses =
        std::ranges::any_of(links, [&](const fs::path& link) { return is_within(target_of(link), point); });
    if (uses) users.push_back({pid, text_of(folder / "comm")});
  }
  return users;
}

void kill_sshfs(const SshfsProcess& process) {
  std::vector<std::pair<int64_t, int64_t>> doomed;  // PID and start time
  for (const auto& [pid, folder] : numbered("/proc")) {
    if (pid == process.pid || getsid(static_cast<pid_t>(pid)) != process.pid) continue;
    const auto stat = device::parse_process_stat(text_of(folder / "stat"));
    if (stat && stat->comm == "ssh") doomed.emplace_back(pid, stat->start_ticks);
  }
  doomed.emplace_back(process.pid, process.start_ticks);
  for (const auto& [pid, start_ticks] : doomed) {
    try {
      device::ProcessHandle(pid, start_ticks).signal(SIGKILL);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
  }
}

}  // namespace yoke::storage
