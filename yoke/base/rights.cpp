#include "yoke/base/rights.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "yoke/base/error.h"

namespace yoke {
namespace {

/// Takes effective rights alone: the real and the saved user stay root's, so that the other user can neither signal nor
/// inspect this process, and it can return.
class Taken {
 public:
  explicit Taken(const Rights& rights) : own_uid_(geteuid()), own_gid_(getegid()), own_groups_(own_groups()) {
    if (setgroups(rights.groups.size(), rights.groups.data()) == 0 && setegid(rights.gid) == 0 &&
        seteuid(rights.uid) == 0) {
      return;
    }
    const auto error = system_error(errno, fmt::format("taking the rights of user {}", rights.uid));
    give_back();
    throw error;
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() { give_back(); }

 private:
  static std::vector<gid_t> own_groups() {
    std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
    if (getgroups(static_cast<int>(groups.size()), groups.data()) < 0) throw system_error(errno, "reading own groups");
    return groups;
  }
  void give_back() const {
    const bool is_back = seteuid(own_uid_) == 0 && setegid(own_gid_) == 0;
    // A process that may not change its groups has not changed them.
    if (!is_back || (setgroups(own_groups_.size(), own_groups_.data()) != 0 && errno != EPERM)) abort();
  }

  const uid_t own_uid_;
  const gid_t own_gid_;
  const std::vector<gid_t> own_groups_;
};

}  // namespace

std::optional<Rights> rights_of_peer(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  Rights rights{.uid = peer.uid, .gid = peer.gid, .groups = {}};
  size = 0;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) != 0 && errno == ERANGE) {
    rights.groups.resize(size / sizeof(gid_t));
    if (getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, rights.groups.data(), &size) != 0) rights.groups.clear();
  }
  return rights;
}

void with_rights(const Rights& rights, const std::function<void()>& work) {
  if (rights.uid == geteuid()) return work();
  const Taken taken(rights);
  work();
}

}  // namespace yoke
