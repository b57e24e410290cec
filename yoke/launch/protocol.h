// yoke/launch/protocol.h -- what launcher and guardian tell each other, over a SOCK_SEQPACKET pair, so that a message
// is whole or absent and the other's death is an end of file.
#pragma once

#include <cstdint>
#include <optional>

namespace yoke::launch {

struct Message {
  enum class Kind : int32_t {
    // launcher to guardian
    kSignal,   ///< value: to the process group of every rank; the group is to end.
    kForward,  ///< value: the same, and the group goes on.
    kKill,     ///< End everything now.
    kRelease,  ///< After kDone: the launcher looks after what is to be removed.
    // guardian to launcher
    kStarted,      ///< rank, pid
    kCannotRun,    ///< rank, value: errno of exec
    kCannotStart,  ///< rank, value: errno of fork
    kExited,       ///< rank, pid, value: wait status
    kLeftBehind,   ///< pid of a process that SIGKILL does not end
    kDone,         ///< The last message: nothing of the job is left but those.
  };
  Kind kind = Kind::kDone;
  int32_t rank = -1;
  int32_t pid = 0;
  int32_t value = 0;
};

/// Blocks until there is room. A peer that has gone is no error: its end of file tells.
void send_message(int fd, const Message& message);

/// nullopt when the peer has gone. Blocks while there is none: poll first.
std::optional<Message> receive_message(int fd);

}  // namespace yoke::launch
