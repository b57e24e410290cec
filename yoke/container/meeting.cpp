#include "yoke/container/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/user_socket.h"
#include "yoke/container/plan.h"

namespace yoke::container {
namespace {

/// Returns what the container's first program has said; empty if it has said nothing, or has ended.
std::string receive(const UniqueFd& connection) {
  std::string text(16384, '\0');
  std::vector<UniqueFd> files;
  const auto count = receive_with_fds(connection.value(), std::as_writable_bytes(std::span(text)), files, MSG_DONTWAIT);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return text;
}

}  // namespace

Meeting::Meeting(const std::filesystem::path& folder) {
  const auto path = (folder / kSocketName).native();
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) {
    throw Error(ErrorCode::kInvalidArgument, "{}: the path is too long for a socket", path);
  }
  path.copy(static_cast<char*>(address.sun_path), path.size());
  fd_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_ || bind(fd_.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd_.value(), 4) != 0) {
    throw system_error(errno, "listening at " + path);
  }
  // The program may be any user of the container's; only who reaches the private folder reaches the socket.
  chmod(path.c_str(), 0666);
}

std::optional<Arrival> Meeting::accept() const {
  Arrival arrival;
  arrival.connection = accept_connection(fd_.value());
  if (!arrival.connection) return std::nullopt;
  const auto peer = peer_of(arrival.connection.value());
  if (peer && peer->pid > 0) {
    arrival.pid = peer->pid;
    arrival.process = open_process(peer->pid);
  }
  pollfd news{arrival.connection.value(), POLLIN, 0};
  constexpr int kLimitMs = 10'000;
  poll(&news, 1, kLimitMs);
  arrival.report = receive(arrival.connection);
  return arrival.report.empty() ? std::nullopt : std::optional(std::move(arrival));
}

void consent(const Arrival& arrival, const std::optional<std::string>& refusal) {
  const auto word = refusal ? "no " + refusal->substr(0, 8000) : std::string("go");
  [[maybe_unused]] const auto count = send(arrival.connection.value(), word.data(), word.size(), MSG_NOSIGNAL);
}

std::optional<Beginning> parse_beginning(std::string_view text) {
  constexpr std::string_view kFailed = "failed ";
  if (text == "started") return Beginning{};
  if (!text.starts_with(kFailed)) return std::nullopt;
  text.remove_prefix(kFailed.size());
  const auto blank = text.find(' ');
  const auto status = parse_int(text.substr(0, blank));
  if (blank == text.npos || !status || *status < 1 || *status > 255) return std::nullopt;
  return Beginning{.status = static_cast<int>(*status), .why = std::string(text.substr(blank + 1))};
}

std::optional<Beginning> hear_beginning(const Arrival& arrival) { return parse_beginning(receive(arrival.connection)); }

void send_signal(const Arrival& arrival, int number) {
  const auto word = fmt::format("signal {}", number);
  [[maybe_unused]] const auto count =
      send(arrival.connection.value(), word.data(), word.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace yoke::container
