#include "yoke/dist/shared/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSecretDigits = 32;
constexpr char kMapped = 'm', kAllHave = 'y', kNotAllHave = 'n', kFile = 'f';
/// So often the Door asks how many ranks will not come.
constexpr milliseconds kAskInterval(10);

std::span<const std::byte> bytes_of(const char& letter) { return std::as_bytes(std::span(&letter, 1)); }

bool is_of_this_user(int connection) {
  const auto peer = peer_of(connection);
  return peer && peer->uid == geteuid();
}

/// Returns an empty UniqueFd if nobody listens there, or another user.
UniqueFd connect_abstract(std::string_view name, Clock::time_point until) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  if (!fd || name.size() > sizeof address.sun_path - 1) return {};
  const auto left = std::max<int64_t>(1, std::chrono::duration_cast<milliseconds>(until - Clock::now()).count());
  const timeval limit{.tv_sec = static_cast<time_t>(left / 1000),
                      .tv_usec = static_cast<suseconds_t>(left % 1000 * 1000)};
  setsockopt(fd.value(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.value(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  while (connect(fd.value(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno != EINTR) return {};
  }
  return is_of_this_user(fd.value()) ? std::move(fd) : UniqueFd();
}

/// A connection to a rank, as the Door sees it.
struct Guest {
  UniqueFd connection;
  bool has_file = false, has_mapped = false;
};

/// Reads what a rank has sent, and answers. Returns false if it has gone, or is not a rank.
bool attend(Guest& guest, const std::string& secret, const UniqueFd& file) {
  char text[kSecretDigits + 1] = {};
  const auto count = recv(guest.connection.value(), text, kSecretDigits, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  const std::string_view said(text, static_cast<size_t>(count));
  if (!guest.has_file) {
    const int fds[] = {file.value()};
    guest.has_file = said == secret && send_with_fds(guest.connection.value(), bytes_of(kFile), fds);
    return guest.has_file;
  }
  guest.has_mapped = true;
  return said == std::string_view(&kMapped, 1);
}

}  // namespace

Door::Door() : secret_(random_digits(kSecretDigits)) {
  std::string name;
  listener_ = listen_as_user("yoke-ranks", &name);
  if (!listener_) throw system_error(errno, "listening for the ranks of this host");
  address_ = name + " " + secret_;
}

bool Door::pass(const UniqueFd& file, const Guests& guests) {
  std::vector<Guest> inside;
  int64_t num_failed = 0;  // they came, and did not map the file
  while (true) {
    const auto num_mapped = std::ranges::count_if(inside, &Guest::has_mapped);
    const auto num_absent = num_mapped + num_failed == guests.count ? 0 : guests.num_absent();
    if (num_mapped + num_failed + num_absent >= guests.count) {
      const bool all_have = num_mapped == guests.count;
      for (const auto& guest : inside)
        send_with_fds(guest.connection.value(), bytes_of(all_have ? kAllHave : kNotAllHave), {});
      return all_have;
    }
    if (Clock::now() >= guests.until) {
      throw std::runtime_error("Timed out waiting for ranks that share a host to take the memory that they share");
    }
    const auto asked_at = Clock::now();
    while (Clock::now() < asked_at + kAskInterval) {
      std::vector<pollfd> polled = {{listener_.value(), POLLIN, 0}};
      for (const auto& guest : inside) polled.push_back({guest.connection.value(), POLLIN, 0});
      if (poll(polled.data(), polled.size(), static_cast<int>(kAskInterval.count())) <= 0) break;
      bool is_news = false;
      for (size_t i = inside.size(); i-- > 0;) {
        if (polled[i + 1].revents == 0) continue;
        if (attend(inside[i], secret_, file)) {
          is_news |= inside[i].has_mapped;
        } else {
          num_failed += inside[i].has_file ? 1 : 0;
          is_news = true;
          inside.erase(inside.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      if (polled[0].revents != 0) {
        auto connection = accept_connection(listener_.value());
        if (connection && is_of_this_user(connection.value())) inside.push_back({.connection = std::move(connection)});
      }
      if (is_news) break;
    }
  }
}

Joined join(const std::string& address, const std::function<void(const UniqueFd&)>& use, Clock::time_point until) {
  const auto space = address.find(' ');
  if (space == address.npos) return Joined::kAbsent;
  const auto connection = connect_abstract(std::string_view(address).substr(0, space), until);
  const auto secret = std::string_view(address).substr(space + 1);
  if (!connection || !send_with_fds(connection.value(), std::as_bytes(std::span(secret)), {})) return Joined::kAbsent;
  const auto receive = [&](std::vector<UniqueFd>& fds) {
    char letter = 0;
    if (receive_with_fds(connection.value(), std::as_writable_bytes(std::span(&letter, 1)), fds) == 1) return letter;
    throw std::runtime_error(Clock::now() >= until
                                 ? "Timed out waiting for the memory that the ranks of a host share"
                                 : "Connection closed by peer: the first rank of the group has ended");
  };
  std::vector<UniqueFd> fds;
  if (receive(fds) != kFile || fds.empty()) return Joined::kNotAll;  // this process may have no more descriptors
  try {
    use(fds[0]);
  } catch (const std::exception&) {
    return Joined::kNotAll;  // the Door sees the end of the connection
  }
  if (!send_with_fds(connection.value(), bytes_of(kMapped), {})) {
    throw std::runtime_error("Connection closed by peer: the first rank of the group has ended");
  }
  return receive(fds) == kAllHave ? Joined::kAll : Joined::kNotAll;
}

}  // namespace yoke::dist::shared
