// tools/store/main.cpp -- serves the ranks' TCPStore in a separate process, for jobs in which any rank may end before
// the other ranks.
//
//   yoke-store [--fd N]    N: a TCP socket that is bound but does not listen yet; default: YOKE_MASTER_LISTEN_FD
//
// The program listens at once, serves until its standard input ends, and then exits with 0. Standard input is a pipe
// from the parent, so the store ends with its parent. Signals except SIGKILL are ignored. The program prints nothing;
// clients poll the port.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace {

using yoke::Error;
using yoke::ErrorCode;

struct Address {
  std::string host;
  uint16_t port = 0;
};

int option_of(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

/// Returns the address at which a client on this host can connect to the socket.
Address address_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "descriptor {} is not a socket: {}", fd, strerror(errno));
  }
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    if (four.sin_addr.s_addr == htonl(INADDR_ANY)) return {"127.0.0.1", ntohs(four.sin_port)};
    return {inet_ntop(AF_INET, &four.sin_addr, text, sizeof text), ntohs(four.sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) return {"::1", ntohs(six.sin6_port)};
    return {inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text), ntohs(six.sin6_port)};
  }
  throw Error(ErrorCode::kInvalidArgument, "descriptor {} is a socket, but not of TCP", fd);
}

Address check(int fd) {
  const auto address = address_of(fd);
  if (option_of(fd, SO_PROTOCOL) != IPPROTO_TCP) {
    throw Error(ErrorCode::kInvalidArgument, "descriptor {} is a socket, but not of TCP", fd);
  }
  if (address.port == 0) throw Error(ErrorCode::kInvalidArgument, "socket {} is not bound to a port", fd);
  if (option_of(fd, SO_ACCEPTCONN) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "socket {} listens already; it must be bound only", fd);
  }
  return address;
}

/// A scheduler that ends a job signals all processes of the job, but ranks still need the store while they save their
/// work. Threads inherit the signal mask, so this function must be called before the store starts threads.
void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void wait_for_the_end() {
  char ignored[256];
  while (true) {
    const auto count = read(STDIN_FILENO, ignored, sizeof ignored);
    if (count == 0 || (count < 0 && errno != EINTR)) return;
  }
}

int fd_of(int argc, char** argv) {
  constexpr std::string_view kUsage =
      "usage: yoke-store --fd N, where N is a TCP socket that is bound, or YOKE_MASTER_LISTEN_FD=N";
  const char* text = std::getenv("YOKE_MASTER_LISTEN_FD");
  if (argc == 3 && std::string_view(argv[1]) == "--fd") {
    text = argv[2];
  } else if (argc != 1 || text == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, std::string(kUsage));
  }
  const auto fd = yoke::parse_int(text);
  if (!fd || *fd < 0 || *fd > INT32_MAX) {
    throw Error(ErrorCode::kInvalidArgument, "{} is not a descriptor; {}", text, kUsage);
  }
  return static_cast<int>(*fd);
}

int serve(int fd) {
  const auto address = check(fd);
  block_signals();
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = fd;
  const auto store = c10::make_intrusive<c10d::TCPStore>(address.host, options);
  wait_for_the_end();
  _exit(0);  // nothing must be written or awaited, and libtorch's destructors are slow
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return serve(fd_of(argc, argv));
  } catch (const Error& error) {
    fmt::print(stderr, "yoke-store: {}\n", error.what());
    return yoke::exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "yoke-store: cannot serve: {}\n", error.what());
    return yoke::exit_status(ErrorCode::kUnavailable);
  }
}
