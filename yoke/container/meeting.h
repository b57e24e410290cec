// yoke/container/meeting.h -- where the keeper of a claim meets the first program of its container.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "yoke/base/file.h"

namespace yoke::container {

/// The first program of a container, which waits for the keeper's consent.
struct Arrival {
  UniqueFd connection;
  UniqueFd process;    ///< A pidfd; empty if this process cannot see that PID namespace.
  pid_t pid = 0;       ///< As seen by this process.
  std::string report;  ///< See parse_sight().
};

/// A socket in a folder that is mounted into the container. The kernel tells which process has connected.
class Meeting {
 public:
  /// Errors  as errno says.
  explicit Meeting(const std::filesystem::path& folder);

  int fd() const { return fd_.value(); }

  /// The program that has connected; nullopt if none has.
  std::optional<Arrival> accept() const;

 private:
  UniqueFd fd_;
};

/// Tells the program to start what it has to start, or why not.
void consent(const Arrival& arrival, const std::optional<std::string>& refusal);

/// Makes the program pass a signal on; SIGKILL ends all processes of the container.
void send_signal(const Arrival& arrival, int number);

}  // namespace yoke::container
