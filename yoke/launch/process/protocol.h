// yoke/launch/process/protocol.h -- what a node and its guardian tell each other, over a SOCK_SEQPACKET pair, so that a
// message is whole or absent and the other's death is an end of file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/base/process.h"

namespace yoke::launch {

struct Message {
  enum class Kind : int32_t {
    // node to guardian
    kStart,    ///< value: number of kRank messages that follow; rank: 1 if a program may be preloaded for them.
               ///< Descriptors: the plans (plan_codec.h) as a text, then the master's socket, if there is one.
    kRank,     ///< rank: index in the plans; value: RankStream bits. Descriptors: a stream for each bit, in that order.
    kSignal,   ///< value: to the process group of every rank; the group is to end. pid: a process group that has it
               ///< already, from the terminal; 0: none.
    kForward,  ///< value: the same, and the group goes on.
    kKill,     ///< End everything now.
    kEndStore,  ///< The store, which outlives the ranks.
    // guardian to node
    kStarted,       ///< rank, pid
    kCannotRun,     ///< rank, value: errno of exec
    kCannotStart,   ///< rank, value: errno of fork
    kExited,        ///< rank, pid, value: wait status
    kLeftBehind,    ///< pid of a process that SIGKILL does not end
    kOnlyStore,     ///< The ranks have ended, and the store waits for kEndStore.
    kNotPreloaded,  ///< Ranks are started by exec. Descriptor: why, as a text.
    kDone,          ///< Nothing of what was started is left but those; another kStart may follow.
  };
  Kind kind = Kind::kDone;
  int32_t rank = -1;  ///< Index in the plans.
  int32_t pid = 0;
  int32_t value = 0;
};

/// Standard streams that a kRank message brings; the others are /dev/null.
enum RankStream : int32_t { kStandardInput = 1, kStandardOutput = 2, kStandardError = 4 };

/// Blocks until there is room. A peer that has gone is no error: its end of file tells.
/// Errors  kUnavailable: descriptors cannot be sent, since too many are on their way.
void send_message(int fd, const Message& message, const std::vector<int>& descriptors = {});

/// nullopt when the peer has gone. Blocks while there is none: poll first. Descriptors come close-on-exec, and above
/// the three standard streams.
std::optional<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors = nullptr);

}  // namespace yoke::launch
