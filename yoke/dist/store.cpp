#include "yoke/dist/detail/store.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/contract/variables.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool accepts(const addrinfo& address) {
  const UniqueFd socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  return socket && connect(socket.value(), address.ai_addr, address.ai_addrlen) == 0;
}

/// TCPStore's client sleeps for a second after a refused connection. Because ranks start together, the first attempt of
/// most ranks is refused. So this function first tries to connect every few milliseconds until a server listens.
void wait_until_served(const RankEnv& rank, milliseconds timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto port = std::to_string(rank.master_port);
  if (const int status = getaddrinfo(rank.master_addr.c_str(), port.c_str(), &hints, &found); status != 0) {
    throw Error(ErrorCode::kNotFound, "MASTER_ADDR '{}' cannot be resolved: {}", rank.master_addr,
                gai_strerror(status));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  const auto deadline = steady_clock::now() + timeout;
  for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(50))) {
    for (const auto* address = addresses.get(); address != nullptr; address = address->ai_next) {
      if (accepts(*address)) return;
    }
    if (steady_clock::now() + pause > deadline) {
      throw Error(ErrorCode::kTimeout, "rank {}: nothing serves the ranks' TCPStore at {}:{} ({} s); has {} started?",
                  rank.rank, rank.master_addr, rank.master_port, std::chrono::duration<double>(timeout).count(),
                  rank.agent_serves_store ? "the launcher" : "rank 0");
    }
    std::this_thread::sleep_for(pause);
  }
}

/// Returns the socket that `yoke run` bound for rank 0; nullopt if the descriptor is a different file now. A program
/// between the launcher and this process may have closed or reused the descriptor.
std::optional<int> inherited_socket(const RankEnv& rank) {
  if (!rank.master_listen_fd) return std::nullopt;
  const int fd = *rank.master_listen_fd;
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  if (address.ss_family != AF_INET || ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port) != rank.master_port) {
    return std::nullopt;
  }
  unsetenv(variable::kMasterListenFd);  // a second World in this process must not use the socket again
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

c10::intrusive_ptr<c10d::Store> connect_tcp(const RankEnv& rank, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = rank.master_port;
  options.timeout = timeout;
  options.waitWorkers = false;
  options.isServer = rank.rank == 0 && !rank.agent_serves_store;
  if (options.isServer) {
    options.masterListenFd = inherited_socket(rank);
  } else {
    wait_until_served(rank, timeout);
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(rank.master_addr, options);
  } catch (const std::exception& error) {
    if (options.isServer) {
      throw Error(ErrorCode::kUnavailable,
                  "rank 0 cannot serve the ranks' TCPStore on port {} (MASTER_PORT); is another job using it? {}",
                  rank.master_port, error.what());
    }
    throw Error(ErrorCode::kUnavailable, "rank {} cannot join the ranks' TCPStore at {}:{}: {}", rank.rank,
                rank.master_addr, rank.master_port, error.what());
  }
}

/// All Worlds of the process share one connection, and on rank 0 one server. If each World had its own server, a fast
/// rank could connect its next World to the server of the previous World, while rank 0 is closing that server.
c10::intrusive_ptr<c10d::Store> connection_of_process(const RankEnv& rank, milliseconds timeout) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uint16_t>, c10::intrusive_ptr<c10d::Store>> connections;
  const std::lock_guard lock(mutex);
  auto& connection = connections[{rank.master_addr, rank.master_port}];
  if (!connection) connection = connect_tcp(rank, timeout);
  return connection;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const RankEnv& rank, milliseconds timeout) {
  if (rank.world_size == 1 && !rank.agent_serves_store) return c10::make_intrusive<c10d::HashStore>();
  static std::atomic<int> num_worlds = 0;  // the count is the same on all ranks
  return c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("yoke/{}/{}/{}", rank.run_id, rank.restart_count, num_worlds++),
      connection_of_process(rank, timeout));
}

}  // namespace yoke::dist
