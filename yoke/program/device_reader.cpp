#include "yoke/program/device_reader.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/device/json.h"

namespace yoke::program {
namespace {

/// Leaves what belongs to the parent: its descriptors, its signals and its terminal. Returns the new descriptor of
/// `socket`.
int leave_parent(int socket) {
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  constexpr int kSocket = STDERR_FILENO + 1;
  if (socket != kSocket) dup2(socket, kSocket);
  close_from(kSocket + 1);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  setsid();
  prctl(PR_SET_NAME, "yoke-reader");
  return kSocket;
}

/// Answers requests until the parent has ended.
void serve(int socket, const DeviceReader::Options& options) {
  const auto source = options.open();
  char byte = 0;
  for (;;) {
    const auto count = recv(socket, &byte, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    const auto text = to_descriptor(device::to_json(source->sample(options.want)).dump());
    const int fd = text.value();
    if (!send_with_fds(socket, std::as_bytes(std::span(&byte, 1)), std::span(&fd, 1))) break;
  }
  if (options.at_end) options.at_end();
}

}  // namespace

DeviceReader::DeviceReader(const Options& options) {
  auto sockets = make_socket_pair();
  child_ = fork();  // not spawn(): the child continues in this function
  if (child_ < 0) throw system_error(errno, "starting the process that reads the devices");
  if (child_ == 0) {
    const int socket = leave_parent(sockets.far.value());
    try {
      serve(socket, options);
    } catch (const std::exception&) {  // the end of the socket tells the parent
    }
    _exit(0);  // a driver may hold a thread
  }
  socket_ = std::move(sockets.near);
}

DeviceReader::~DeviceReader() { reap(end()); }

pid_t DeviceReader::end() {
  if (child_ > 0) kill(child_, SIGKILL);
  return std::exchange(child_, -1);
}

void DeviceReader::reap(pid_t child) {
  if (child <= 0) return;
  constexpr int kMostLooks = 200;  // of a tenth of a millisecond each
  for (int look = 0; look < kMostLooks && waitpid(child, nullptr, WNOHANG) == 0; ++look) usleep(100);
}

bool is_well(const device::Snapshot& snapshot) { return std::ranges::all_of(snapshot.devices, device::is_answering); }

void DeviceReader::request() {
  const char byte = 0;
  is_asked_ = true;
  [[maybe_unused]] const auto count = send(socket_.value(), &byte, 1, MSG_NOSIGNAL);  // take() learns of a failure
}

std::optional<device::Snapshot> DeviceReader::take() {
  is_asked_ = false;
  std::byte byte{};
  std::vector<UniqueFd> fds;
  if (receive_with_fds(socket_.value(), std::span(&byte, 1), fds) != 1 || fds.size() != 1) return std::nullopt;
  try {
    return device::snapshot_from_json(text_of(fds[0]));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace yoke::program
