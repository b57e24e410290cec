#include "yoke/bench/measurement.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/program/watched_program.h"

namespace yoke::bench {

MeasurementOutput run(const Measurement& measurement, const std::function<void(const std::string& line)>& on_progress) {
  MeasurementOutput output;
  std::string lines;
  program::SignalMessages messages;
  auto pipe = make_pipe();
  const pid_t pid = spawn({.argv = measurement.argv,
                           .environment = measurement.environment.to_strings(),
                           .in = kNullStream,
                           .out = pipe.write_end.value(),
                           .death_signal = SIGTERM});
  if (pid < 0) throw system_error(errno, "starting " + measurement.argv[0]);
  pipe.write_end.reset();
  std::array<pollfd, 2> fds = {pollfd{pipe.read_end.value(), POLLIN, 0}, pollfd{messages.fd(), POLLIN, 0}};
  for (bool is_open = true; is_open;) {
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) break;
    while (const auto message = messages.next()) {
      // The program has the signals of the terminal already, as a member of the same process group.
      if (message->signal != SIGCHLD && message->is_from_process) kill(pid, message->signal);
    }
    if (fds[0].revents == 0) continue;
    std::array<char, 4096> bytes;
    const auto count = read(fds[0].fd, bytes.data(), bytes.size());
    if (count > 0) lines.append(bytes.data(), static_cast<size_t>(count));
    for (size_t end = 0; (end = lines.find('\n')) != lines.npos; lines.erase(0, end + 1)) {
      auto line = lines.substr(0, end);
      line.starts_with('{') ? void(output.object = std::move(line)) : on_progress(line);
    }
    is_open = count > 0 || (count < 0 && errno == EINTR);
  }
  output.status = wait_for_child(pid);
  return output;
}

}  // namespace yoke::bench
