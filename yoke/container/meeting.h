// yoke/container/meeting.h -- where the keeper of a claim meets the first program of its container.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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

/// What the container's first program has made of the user's program.
struct Beginning {
  int status = 0;   ///< 0: it runs. Otherwise the exit status of the container.
  std::string why;  ///< Why it does not run; empty if it does.
};

/// Reads what the first program says after the consent. Returns nullopt if it has ended without a word. REQUIRES:
/// poll() has found the connection readable.
std::optional<Beginning> hear_beginning(const Arrival& arrival);
/// Parses "started" and "failed 127 cannot start ...". Returns nullopt for anything else. Pure.
std::optional<Beginning> parse_beginning(std::string_view text);

/// Makes the program pass a signal on; SIGKILL ends all processes of the container.
void send_signal(const Arrival& arrival, int number);

}  // namespace yoke::container
