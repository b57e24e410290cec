// yoke/device/process/info.h -- describes the process behind a PID that a driver reports.
//
// Texts are arbitrary bytes from the process. Apply printable() before printing them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::device {

struct ProcessInfo {
  /// Whether the process is in this machine's /proc. nullopt if this was not checked.
  std::optional<bool> is_visible;
  std::string reason;  ///< Why values are unknown: "not in this PID namespace, hidden by hidepid, or just ended".

  std::optional<int64_t> uid;
  std::string user;  ///< The user's name, or the number if the user has no name.
  std::string name;  ///< A short name: "train.py" for `python -u train.py --lr 1`, otherwise the program's file name.
  std::string command;  ///< The arguments joined by spaces; for a kernel thread or a zombie, its name in brackets.

  std::optional<int64_t> parent_pid;  ///< nullopt also if it is outside of this PID namespace, or the process ends.
  std::optional<char> state;          ///< 'R', 'S', 'D' (waits in the kernel, cannot be killed), 'Z' (has ended)...
  /// Start time in clock ticks since boot. Together with the PID it identifies the process, even if the PID is reused.
  std::optional<int64_t> start_ticks;
  std::optional<std::chrono::system_clock::time_point> started_at;
  std::optional<std::chrono::milliseconds> cpu_time;  ///< CPU time of all its threads, in user code and kernel.
  std::optional<int64_t> resident_bytes;              ///< Host memory.

  bool operator==(const ProcessInfo&) const = default;
};

/// Describes the process `pid` below `proc`. If the process does not exist, the result says so. If it ends meanwhile,
/// the result holds what was read before. All values are about one process, even if the PID is reused meanwhile. Does
/// not throw. May block if the process hangs in the kernel with its memory locked, so the caller needs a deadline of
/// its own.
ProcessInfo describe_process(int64_t pid, const std::filesystem::path& proc = "/proc");

/// Returns whether this process is in the machine's first PID namespace, whose PIDs drivers report. In a container with
/// its own namespace, a PID from a driver may not exist, or may belong to a different process by chance.
bool is_first_pid_namespace(const std::filesystem::path& proc = "/proc");

/// Returns a user's name, or the number if the user has no name. Looks the name up at most once a minute. Blocks as
/// long as the directory service does.
std::string user_name(int64_t uid);

// The functions below are pure.

/// The fields of /proc/PID/stat that yoke uses.
struct ProcessStat {
  std::string comm;
  char state = '?';
  int64_t parent_pid = 0;
  int64_t cpu_ticks = 0;
  int64_t start_ticks = 0;
  int64_t resident_pages = 0;

  bool operator==(const ProcessStat&) const = default;
};

/// Parses a line of /proc/PID/stat. The process name may contain brackets, spaces and line feeds. Returns nullopt if
/// the line is incomplete.
std::optional<ProcessStat> parse_process_stat(std::string_view text);

/// Returns the content of /proc/PID/cmdline as one line: NULs become spaces.
std::string join_command(std::string_view cmdline);

/// Returns the short name of a command (ProcessInfo::name). Empty if `cmdline` is empty.
std::string short_command(std::string_view cmdline);

}  // namespace yoke::device
