#include "yoke/device/process/info.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "yoke/base/text.h"
#include "yoke/device/process/folder.h"

namespace yoke::device {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr size_t kStatBytes = 4096;
constexpr size_t kCommandBytes = 64 << 10;              // a process may have megabytes of arguments, too many to show
constexpr int64_t kLargestCount = 100'000'000'000'000;  // limit for ticks and pages; more is invalid and would overflow

int64_t ticks_per_second() {
  static const int64_t ticks = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return ticks;
}

milliseconds since_epoch(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return milliseconds(int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000);
}

/// For the running machine this reads clocks, because reading /proc/stat takes milliseconds with many CPUs.
std::optional<milliseconds> boot_time(const std::filesystem::path& proc) {
  if (proc == "/proc") return since_epoch(CLOCK_REALTIME) - since_epoch(CLOCK_BOOTTIME);
  std::ifstream stream(proc / "stat");
  std::string word;
  int64_t seconds = 0;
  while (stream >> word) {
    if (word == "btime" && stream >> seconds) return milliseconds(seconds * 1000);
  }
  return std::nullopt;
}

std::string look_up_user(int64_t uid) {
  std::vector<char> buffer(16 << 10);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(static_cast<uid_t>(uid), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return fmt::format("{}", uid);
}

/// Removes the first word, up to a NUL, from `text` and returns it.
std::string_view take_argument(std::string_view& text) {
  const auto end = std::min(text.find('\0'), text.size());
  const auto argument = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return argument;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether `program` is "python", "python3", "python3.11", "pypy" or the like.
bool is_python(std::string_view program) {
  for (const std::string_view name : {"python", "pypy"}) {
    if (program.starts_with(name)) return program.substr(name.size()).find_first_not_of("0123456789.") == program.npos;
  }
  return false;
}

}  // namespace

bool is_first_pid_namespace(const std::filesystem::path& proc) {
  struct stat status {};
  constexpr ino_t kFirst = 0xEFFFFFFC;  // PROC_PID_INIT_INO of the kernel, the same since Linux 3.8
  return stat((proc / "self/ns/pid").c_str(), &status) != 0 || status.st_ino == kFirst;
}

std::string user_name(int64_t uid) {
  struct CachedName {
    std::string name;
    std::chrono::steady_clock::time_point at;
  };
  static std::mutex mutex;
  static std::map<int64_t, CachedName> entries;
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex);
    const auto known = entries.find(uid);
    if (known != entries.end() && now - known->second.at < std::chrono::minutes(1)) return known->second.name;
  }
  auto name = look_up_user(uid);  // outside the lock, because a directory service may hang
  const std::lock_guard lock(mutex);
  entries[uid] = {name, now};
  return name;
}

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const auto open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos || close < open) return std::nullopt;
  ProcessStat stat;
  stat.comm = text.substr(open + 1, close - open - 1);
  auto rest = text.substr(close + 1);
  // Fields are numbered as in proc(5), where the first one after the name, the state, has number 3.
  for (int field = 3; field <= 24; ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const auto word = rest.substr(0, rest.find_first_of(" \n"));
    if (word.empty()) return std::nullopt;
    rest.remove_prefix(word.size());
    if (field == 3) {
      stat.state = word[0];
      continue;
    }
    int64_t* const target = field == 4    ? &stat.parent_pid
                            : field == 22 ? &stat.start_ticks
                            : field == 24 ? &stat.resident_pages
                                          : nullptr;
    const bool is_time = field == 14 || field == 15;  // utime, stime
    if (target == nullptr && !is_time) continue;
    const auto value = parse_int(word);
    if (!value || *value < 0 || *value > kLargestCount) return std::nullopt;
    if (target != nullptr) *target = *value;
    if (is_time) stat.cpu_ticks += *value;
  }
  return stat;
}

std::string join_command(std::string_view cmdline) {
  cmdline = cmdline.substr(0, cmdline.find_last_not_of('\0') + 1);
  std::string command(cmdline);
  std::ranges::replace(command, '\0', ' ');
  // Programs that set their own title leave trailing spaces.
  command.erase(command.find_last_not_of(' ') + 1);
  return command;
}

std::string short_command(std::string_view cmdline) {
  const auto first = take_argument(cmdline);
  const auto program = base_name(first.substr(0, first.find(": ")));  // some programs set a title: "sshd: alice [priv]"
  const bool is_shell = is_one_of(program, {"sh", "bash", "dash", "zsh"});
  if (!is_shell && !is_python(program) && !is_one_of(program, {"perl", "ruby", "julia", "node", "Rscript"})) {
    return std::string(program);
  }
  while (!cmdline.empty()) {
    const auto argument = take_argument(cmdline);
    if (argument.size() < 2 || argument[0] != '-') return std::string(argument.empty() ? program : base_name(argument));
    if (argument[1] == '-') continue;
    if (is_python(program) && argument.back() == 'm' && !cmdline.empty()) return std::string(take_argument(cmdline));
    if (is_python(program) && (argument == "-W" || argument == "-X")) take_argument(cmdline);
    // Program text instead of a file name follows -c (shells, Python) or -e (other languages).
    if (argument.find(is_shell || is_python(program) ? 'c' : 'e') != argument.npos) break;
  }
  return std::string(program);
}

ProcessInfo describe_process(int64_t pid, const std::filesystem::path& proc) try {
  ProcessInfo info;
  const ProcessFolder folder(pid, proc);
  if (folder.is_there()) info.uid = folder.owner();
  info.is_visible = info.uid.has_value();  // with hidepid=2 the folder may open although its owner cannot be read
  if (!info.uid) {
    constexpr int64_t kLargestPid = 1 << 22;  // Linux's PID_MAX_LIMIT
    info.reason = pid > 0 && pid <= kLargestPid ? "not in this PID namespace, hidden by hidepid, or just ended"
                                                : "of another virtual machine: no process here can have this PID";
    return info;
  }
  info.user = user_name(*info.uid);
  const auto text = folder.read("stat", kStatBytes);
  const auto stat = text ? parse_process_stat(*text) : std::nullopt;
  if (!stat) {
    info.reason = "hidden by hidepid, or just ended";
    return info;
  }
  if (stat->parent_pid != 0) info.parent_pid = stat->parent_pid;
  info.state = stat->state;
  info.start_ticks = stat->start_ticks;
  const auto milliseconds_of = [](int64_t ticks) {
    const auto rate = ticks_per_second();
    return milliseconds(ticks / rate * 1000 + ticks % rate * 1000 / rate);
  };
  if (const auto boot = boot_time(proc)) {
    info.started_at = system_clock::time_point(*boot + milliseconds_of(stat->start_ticks));
  }
  info.cpu_time = milliseconds_of(stat->cpu_ticks);
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  info.resident_bytes = stat->resident_pages * page_bytes;

  // Read last, because reading may block: the kernel takes the lock of the process's memory.
  const auto cmdline = folder.read("cmdline", kCommandBytes).value_or("");
  info.command = join_command(cmdline);
  info.name = short_command(cmdline);
  if (info.command.empty()) info.command = fmt::format("[{}]", stat->comm);
  if (info.name.empty()) info.name = stat->comm;
  return info;
} catch (const std::exception& error) {  // out of memory
  ProcessInfo info;
  info.reason = error.what();
  return info;
}

}  // namespace yoke::device
