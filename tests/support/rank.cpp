// yoke_test_rank: a rank whose actions would be hard to write in a shell.
//
//   lines COUNT LENGTH   prints lines, in writes that end at arbitrary places
//   tree [stubborn]      starts a child, a grandchild and a daemon in its own session; prints "ready" and waits.
//                        stubborn: all processes ignore every signal that can be ignored
//   orphan               leaves a daemon behind and exits 0
//   port                 checks which programs can use MASTER_PORT; prints "ok"
//   stderr-and-stdout N  prints N lines to each of the two streams
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

[[noreturn]] void wait_for_ever() {
  while (true) pause();
}

void write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0) exit(9);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

std::string line(int index, size_t length) {
  auto text = std::string("r") + getenv("RANK") + "-" + std::to_string(index) + "-";
  text.resize(length - 2, static_cast<char>('a' + index % 26));
  return text + "#\n";
}

int lines(int count, size_t length) {
  constexpr size_t kPortion = 4093;
  std::string pending;
  for (int i = 0; i < count; ++i) {
    pending += line(i, length);
    while (pending.size() >= kPortion) {
      write_whole(1, std::string_view(pending).substr(0, kPortion));
      pending.erase(0, kPortion);
    }
  }
  write_whole(1, pending);
  return 0;
}

void start_daemon() {
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      setpgid(0, 0);
      wait_for_ever();
    }
    _exit(0);
  }
}

int tree(bool stubborn) {
  if (stubborn) {
    for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
  }
  if (fork() == 0) {
    if (fork() == 0) wait_for_ever();
    wait_for_ever();
  }
  start_daemon();
  write_whole(1, "ready\n");
  wait_for_ever();
}

int bind_port(bool reuse, int* fd) {
  *fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (reuse) setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(atoi(getenv("MASTER_PORT"))));
  return bind(*fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

int port() {
  const char* inherited = getenv("YOKE_MASTER_LISTEN_FD");
  int fd = -1;
  if (strcmp(getenv("RANK"), "0") != 0) return inherited == nullptr ? 0 : 1;
  if (inherited == nullptr) return 2;
  if (bind_port(false, &fd) != EADDRINUSE) return 3;              // any other program must fail
  if (bind_port(true, &fd) != 0 || listen(fd, 1) != 0) return 4;  // a store that does not know yoke must succeed
  close(fd);
  if (listen(atoi(inherited), 1) != 0) return 5;  // a yoke program uses the inherited socket
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(atoi(inherited), reinterpret_cast<sockaddr*>(&address), &size);
  if (ntohs(address.sin_port) != atoi(getenv("MASTER_PORT"))) return 6;
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 7;
  puts("ok");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "lines") return lines(atoi(argv[2]), static_cast<size_t>(atoi(argv[3])));
  if (what == "tree") return tree(argc > 2);
  if (what == "orphan") {
    start_daemon();
    return 0;
  }
  if (what == "port") return port();
  if (what == "stderr-and-stdout") {
    for (int i = 0; i < atoi(argv[2]); ++i) {
      write_whole(1, line(i, 2000));
      write_whole(2, line(i, 2000));
    }
    return 0;
  }
  return 64;
}
