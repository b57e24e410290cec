// yoke/launch/process/protocol.h -- the messages between a node and its guardian, over a SOCK_SEQPACKET pair. A message
// arrives as a whole or not at all. When the peer ends, the receiver reads an end of file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/process.h"
#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

struct Message {
  enum class Kind : int32_t {
    // node to guardian
    kStart,  ///< value: the number of kRank messages that follow; rank: 1 if the program may be preloaded.
             ///< Descriptors: the plans (encode_plans()) as a text, then the master's socket, if there is one.
    kRank,   ///< rank: index in the plans; value: RankStream bits. Descriptors: a stream for each bit, in order.
    /// value: a signal for the process group of every rank, which asks the ranks to end. pid: the process group that
    /// already got the signal from the terminal; 0: none. sender: the slurmstepd that may have signalled the ranks
    /// itself (step_daemon.h); 0: none.
    kSignal,
    kForward,   ///< Like kSignal, but the signal does not ask the ranks to end.
    kKill,      ///< End everything now.
    kEndStore,  ///< End the store, which outlives the ranks.
    /// Start a rank again that has ended, while others run. rank: index in the plans; pid: the process that has ended;
    /// value: RankStream bits. Descriptors: its plan as a text, then a stream for each bit, in order.
    kReplace,
    // guardian to node
    kStarted,       ///< rank, pid
    kCannotRun,     ///< rank, value: errno of exec
    kCannotStart,   ///< rank, value: errno of fork
    kExited,        ///< rank, pid, value: wait status
    kLeftBehind,    ///< pid of a process that SIGKILL does not end
    kOnlyStore,     ///< The ranks have ended, and the store waits for kEndStore.
    kStoreRefused,  ///< value: a user of this host who tried to use the store, and may not.
    kStoreFull,     ///< The store has reached its limit, and has refused a request.
    kLeftovers,     ///< Processes that ranks left were ended. Descriptor: which ones, as a text.
    kNotPreloaded,  ///< Ranks are started by exec. Descriptor: the reason, as a text.
    kDone,          ///< All processes but those left behind have ended; another kStart may follow.
  };
  Kind kind = Kind::kDone;
  int32_t rank = -1;  ///< Index in the plans.
  int32_t pid = 0;
  int32_t value = 0;
  int32_t sender = 0;
};

/// The standard streams that come with a kRank message. Streams without a bit are /dev/null.
enum RankStream : int32_t { kStandardInput = 1, kStandardOutput = 2, kStandardError = 4 };

/// Blocks until there is room. A peer that has ended is not an error here: receive_message() reports it.
/// Errors  kUnavailable if descriptors cannot be sent, because too many are in transit.
void send_message(int fd, const Message& message, const std::vector<int>& descriptors = {});

/// Blocks until the next message arrives, and returns it; nullopt if the peer has ended. Received descriptors are
/// close-on-exec, and above 2 as long as the standard streams are open.
std::optional<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors = nullptr);

/// Encodes what the guardian needs of the plans. Output is left out, because the guardian receives its descriptors.
std::string encode_plans(const std::vector<RankPlan>& plans);

/// Errors  kInternal if `text` is not from encode_plans().
std::vector<RankPlan> decode_plans(std::string_view text);

}  // namespace yoke::launch
