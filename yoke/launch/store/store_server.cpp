#include "yoke/launch/store/store_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "yoke/launch/store/peer_user.h"
#include "yoke/launch/store/store_protocol.h"

namespace yoke::launch {
namespace {

constexpr uint32_t kReadable = EPOLLIN, kWritable = EPOLLOUT;
constexpr size_t kMaxReports = 16;

std::string host_of(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

/// Clients are named by their descriptors.
class Server {
 public:
  Server(UniqueFd listener, UniqueFd end, StoreRules rules)
      : listener_(std::move(listener)),
        end_(std::move(end)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        rules_(std::move(rules)),
        protocol_(rules_.limit_bytes) {
    if (rules_.reports) fcntl(rules_.reports.value(), F_SETFL, O_NONBLOCK);
    watch(EPOLL_CTL_ADD, listener_.value(), kReadable);
    watch(EPOLL_CTL_ADD, end_.value(), kReadable);
  }

  void run() {
    std::array<epoll_event, 256> events;
    while (true) {
      const int count = epoll_wait(epoll_.value(), events.data(), static_cast<int>(events.size()), -1);
      if (count < 0 && errno != EINTR) return;
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<size_t>(i)].data.fd;
        if (fd == listener_.value()) {
          accept_one();
        } else if (fd == end_.value()) {
          if (!drain_end()) return;
        } else {
          serve(fd, events[static_cast<size_t>(i)].events);
        }
        send_replies();
      }
    }
  }

 private:
  struct Client {
    UniqueFd socket;
    std::string unsent;
    bool waits_for_room = false;
  };

  void watch(int operation, int fd, uint32_t events) const {
    epoll_event event{.events = events, .data = {.fd = fd}};
    epoll_ctl(epoll_.value(), operation, fd, &event);
  }

  /// Returns false at the end of the file.
  bool drain_end() const {
    char ignored[256];
    const auto count = read(end_.value(), ignored, sizeof ignored);
    return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
  }

  void accept_one() {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    UniqueFd socket(
        accept4(listener_.value(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: the client stays in the queue. Without a pause this process would use a whole processor.
      if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, 10);
      return;
    }
    if (!may_use(socket.value(), address)) return;
    const int on = 1;
    setsockopt(socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int fd = socket.value();
    watch(EPOLL_CTL_ADD, fd, kReadable);
    protocol_.connect(fd, host_of(address, size));
    clients_[fd].socket = std::move(socket);
  }

  /// Nothing has been read from the connection yet. One whose other end is closed already has no replies to wait for,
  /// and whose it was is not known, so that it is not read either.
  bool may_use(int fd, const sockaddr_storage& peer_address) {
    if (!rules_.may_use) return true;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
    const auto peer = peer_users_.look_up(peer_address, own);
    if (peer.kind == Peer::Kind::kUser && !rules_.may_use(peer.uid)) {
      if (refused_.size() < kMaxReports && refused_.insert(peer.uid).second) {
        report({StoreReport::Kind::kRefusedUser, static_cast<int64_t>(peer.uid)});
      }
      return false;
    }
    return peer.kind != Peer::Kind::kGone;
  }

  void report(const StoreReport& report) const {
    if (!rules_.reports) return;
    [[maybe_unused]] const auto count = write(rules_.reports.value(), &report, sizeof report);
  }

  void serve(int fd, uint32_t events) {
    const auto found = clients_.find(fd);
    if (found == clients_.end()) return;  // was dropped in this turn
    if ((events & kWritable) != 0 && !send_some(fd, found->second)) return drop(fd);
    if ((events & ~kWritable) == 0) return;
    const auto count = recv(fd, buffer_.data(), buffer_.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return drop(fd);
    if (protocol_.take(fd, {buffer_.data(), static_cast<size_t>(count)})) return;
    if (protocol_.is_full() && !std::exchange(has_told_full_, true)) {
      report({StoreReport::Kind::kFull, rules_.limit_bytes});
    }
    drop(fd);
  }

  void send_replies() {
    for (auto& reply : protocol_.take_replies()) {
      const auto found = clients_.find(reply.client);
      if (found == clients_.end()) {
        protocol_.release(static_cast<int64_t>(reply.bytes.size()));
        continue;
      }
      found->second.unsent += reply.bytes;
      if (!found->second.waits_for_room && !send_some(reply.client, found->second)) drop(reply.client);
    }
  }

  /// Returns false if the client is gone.
  bool send_some(int fd, Client& client) {
    while (!client.unsent.empty()) {
      const auto count = send(fd, client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) return false;
      if (count < 0) break;
      client.unsent.erase(0, static_cast<size_t>(count));
      protocol_.release(count);
    }
    if (client.waits_for_room != !client.unsent.empty()) {
      client.waits_for_room = !client.unsent.empty();
      watch(EPOLL_CTL_MOD, fd, client.waits_for_room ? kReadable | kWritable : kReadable);
    }
    return true;
  }

  void drop(int fd) {
    protocol_.disconnect(fd);
    const auto found = clients_.find(fd);
    if (found == clients_.end()) return;
    protocol_.release(static_cast<int64_t>(found->second.unsent.size()));
    clients_.erase(found);
  }

  UniqueFd listener_, end_, epoll_;
  StoreRules rules_;
  PeerUsers peer_users_;
  std::set<uid_t> refused_;  ///< The users that were reported.
  bool has_told_full_ = false;
  StoreProtocol protocol_;
  std::unordered_map<int, Client> clients_;
  std::array<char, 1 << 16> buffer_;
};

}  // namespace

void serve_store(UniqueFd listener, UniqueFd end, StoreRules rules) {
  try {
    Server(std::move(listener), std::move(end), std::move(rules)).run();
  } catch (...) {  // out of memory
    _exit(1);
  }
  _exit(0);  // not exit(), which would run handlers of the program that was forked
}

}  // namespace yoke::launch
