// yoke/device/process/info.h -- who and what is behind a PID that a driver reports.
//
// Texts are as the process wrote them, any bytes: make them printable() before they reach a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::device {

struct ProcessInfo {
  /// Whether this machine's /proc has the process. nullopt: nobody has looked yet.
  std::optional<bool> is_visible;
  std::string reason;  ///< Why something is not known: "not in this PID namespace, hidden by hidepid, or just ended".

  std::optional<int64_t> uid;
  std::string user;     ///< Its name, or the number where it has none.
  std::string name;     ///< Short: "train.py" of `python -u train.py --lr 1`, else the program's file name.
  std::string command;  ///< The arguments joined by spaces; of a kernel thread or a zombie its name in brackets.

  std::optional<int64_t> parent_pid;
  std::optional<char> state;  ///< 'R', 'S', 'D' (waits in the kernel, cannot be ended), 'Z' (has ended)...
  /// Clock ticks since the machine started. With the PID: this process and no later one of the same number.
  std::optional<int64_t> start_ticks;
  std::optional<std::chrono::system_clock::time_point> started_at;
  std::optional<std::chrono::milliseconds> cpu_time;  ///< Of all its threads, in user code and kernel.
  std::optional<int64_t> resident_bytes;              ///< Of the host's memory.

  bool operator==(const ProcessInfo&) const = default;
};

/// What is known of `pid` below `proc`. One that is not there is described as such, and one that ends meanwhile by what
/// was read. All of it is about one process, even where the PID is reused meanwhile. Nothing is thrown.
/// May block where the process hangs in the kernel with its memory locked: for callers with a deadline.
ProcessInfo describe_process(int64_t pid, const std::filesystem::path& proc = "/proc");

/// Whether PIDs here are those of the machine, as drivers report them. In a container with PIDs of its own, one of a
/// driver may be nobody's here, or by chance another process's.
bool is_first_pid_namespace(const std::filesystem::path& proc = "/proc");

/// A user's name, or its number. Looked up once a minute at most; may block as long as the directory service does.
std::string user_name(int64_t uid);

// The parts without a machine.

/// The fields of /proc/PID/stat that are used here.
struct ProcessStat {
  std::string comm;
  char state = '?';
  int64_t parent_pid = 0;
  int64_t cpu_ticks = 0;
  int64_t start_ticks = 0;
  int64_t resident_pages = 0;

  bool operator==(const ProcessStat&) const = default;
};

/// nullopt when `text` is no whole line of /proc/PID/stat. A name with brackets, spaces or line feeds is no trouble.
std::optional<ProcessStat> parse_process_stat(std::string_view text);

/// /proc/PID/cmdline as one line: NULs become spaces.
std::string join_command(std::string_view cmdline);

/// The name that people would give it; see ProcessInfo::name. Empty when `cmdline` is.
std::string short_command(std::string_view cmdline);

}  // namespace yoke::device
