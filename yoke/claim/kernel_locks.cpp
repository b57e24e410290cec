#include "yoke/claim/kernel_locks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"

namespace yoke::claim {

std::vector<KernelLock> parse_locks(std::string_view text, std::string_view kind) {
  std::vector<KernelLock> locks;
  for (const auto line : lines_of(text)) {
    // "1: FLOCK  ADVISORY  WRITE 4121 00:1a:98765 0 EOF"; after "1:" comes "->" for a process that waits.
    auto words = words_of(line);
    if (!words.empty() && words[0] == "lock:") words.erase(words.begin());
    if (words.size() < 6 || words[1] != kind) continue;
    const auto pid = parse_int(words[4]);
    const auto place = words[5];
    const auto last = place.rfind(':');
    if (!pid || last == place.npos) continue;
    KernelLock lock{
        .device = std::string(place.substr(0, last)), .pid = static_cast<pid_t>(*pid), .is_shared = words[3] == "READ"};
    const auto number = place.substr(last + 1);
    const auto [end, error] = std::from_chars(number.begin(), number.end(), lock.inode);
    if (error == std::errc() && end == number.end()) locks.push_back(std::move(lock));
  }
  return locks;
}

std::vector<KernelLock> read_locks(std::string_view kind) {
  return parse_locks(yoke::read_text("/proc/locks", SIZE_MAX).value_or(""), kind);
}

std::string device_of_lock(int fd) {
  const auto locks = parse_locks(text_of(fmt::format("/proc/self/fdinfo/{}", fd)));
  return locks.empty() ? "" : locks.front().device;
}

std::optional<ProcessFacts> process_facts(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto status = text_of(fmt::format("/proc/{}/status", pid));
  if (status.empty()) return std::nullopt;
  ProcessFacts facts;
  for (const auto line : lines_of(status)) {
    const auto words = words_of(line);
    if (words.size() >= 3 && words[0] == "Uid:") {
      facts.real_uid = parse_int(words[1]);
      facts.effective_uid = parse_int(words[2]);
    }
    if (words.size() >= 2 && words[0] == "State:" && (words[1] == "Z" || words[1] == "X")) return std::nullopt;
    if (words.size() >= 2 && words[0] == "State:") facts.is_stopped = words[1] == "T" || words[1] == "t";
  }
  facts.start_ticks = start_ticks_of(pid);
  return facts;
}

std::optional<bool> has_open(pid_t pid, uint64_t inode) {
  std::error_code error;
  const std::filesystem::directory_iterator begin(fmt::format("/proc/{}/fd", pid), error);
  if (error) return std::nullopt;
  for (auto at = begin; at != std::filesystem::directory_iterator(); at.increment(error)) {
    struct stat status {};
    if (error) return std::nullopt;
    if (stat(at->path().c_str(), &status) == 0 && status.st_ino == inode) return true;
  }
  return false;
}

}  // namespace yoke::claim
