#include "yoke/device/process/port_owner.h"

#include <fmt/format.h>

#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

bool has_open(int64_t pid, const std::string& link) {
  std::error_code error, gone;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (fs::read_symlink(entry->path(), gone) == link) return true;
  }
  return false;
}

}  // namespace

// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode; st 0A: it listens.
std::optional<ListeningSocket> find_listening_socket(std::string_view text, uint16_t port) {
  const auto end = fmt::format(":{:04X}", port);
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() < 10 || words[3] != "0A" || !words[1].ends_with(end)) continue;
    const auto uid = parse_int(words[7]), inode = parse_int(words[9]);
    if (uid && inode) return ListeningSocket{*uid, *inode};
  }
  return std::nullopt;
}

std::optional<ListeningSocket> listener_at(uint16_t port) {
  const auto socket = find_listening_socket(text_of("/proc/net/tcp"), port);
  return socket ? socket : find_listening_socket(text_of("/proc/net/tcp6"), port);
}

std::string who_listens(uint16_t port) {
  const auto socket = listener_at(port);
  if (!socket) return "";
  const auto user = printable(user_name(socket->uid));
  const auto link = fmt::format("socket:[{}]", socket->inode);
  for (const auto& [pid, folder] : numbered("/proc")) {
    if (has_open(pid, link))
      return fmt::format("process {} of {} ({})", pid, user, printable(describe_process(pid).name));
  }
  return "a process of " + user;
}

}  // namespace yoke::device
