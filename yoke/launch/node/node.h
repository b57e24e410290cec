// yoke/launch/node/node.h -- the interface of a node, which is this machine or a host at the other end of a connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/error_file.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/order.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

class Node;

/// How a node introduces itself.
struct NodeInfo {
  std::string host;
  std::string address;  ///< Where other nodes reach it; empty if unknown.
  int64_t num_ranks = 1;
  std::optional<int64_t> node_rank;  ///< The node rank that the user gave it.
  bool has_store = false;            ///< It has a program that can serve the ranks' TCPStore.
  std::string nnodes;                ///< Its --nnodes, "2" or "2:4"; empty if the head started it.
  int64_t max_restarts = 0;          ///< Its --max-restarts; 0 if not given, so that the head's value counts.
  bool is_return = false;            ///< It was a node of this job before, and was cut off.
};

/// An event that a node reports. Ranks are numbered over all nodes. Comments name the members that a kind sets.
struct NodeEvent {
  enum class Kind {
    kReady,         ///< It can take part in a start. info: how it introduces itself.
    kPrepared,      ///< value: the port that it holds for the ranks' TCPStore.
    kRefused,       ///< It cannot prepare or start. text: why; value: the exit status for the job.
    kStarted,       ///< A rank was started. rank, pid
    kCannotRun,     ///< exec failed. rank, value: errno
    kCannotStart,   ///< fork failed. rank, value: errno
    kExited,        ///< The process of the rank has ended. rank, pid, value: wait status
    kStoreEnded,    ///< The program that serves the ranks' TCPStore ended before the ranks. pid, value: wait status
    kLeftBehind,    ///< SIGKILL does not end the process `pid`. pid
    kGuardianLost,  ///< The guardian was killed. pid
    kReport,        ///< A rank ended. report: its error report; text: its log, or empty.
    kOnlyStore,     ///< Its ranks have ended; the program that serves the ranks' TCPStore waits for kEndStore.
    kEnded,         ///< All processes that were started have ended.
    kDone,          ///< All output of the ranks was delivered, and so were the reports.
    kSignal,        ///< The launcher of that node received signal `value`, which asks it to end.
    kNotice,        ///< text: for the user. value: 1 if output is lost for good.
    kLost,          ///< The connection has ended. text: why.
  };
  Kind kind = Kind::kDone;
  int64_t rank = -1;
  int pid = 0;
  int value = 0;
  std::string text;
  std::optional<ErrorReport> report;
  std::optional<NodeInfo> info;
};

class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void on_event(Node& node, const NodeEvent& event) = 0;
  /// `bytes`: nullopt at the end of the stream.
  virtual void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) = 0;
  virtual bool has_room(bool is_err) const = 0;  ///< Whether more output is wanted now.
};

/// Where a rank's two streams go.
struct RankStreams {
  StreamPlan out, err;
};

class Node : public EventSource {
 public:
  // The job.

  /// Takes a port for the ranks' TCPStore and holds it. The node then reports kPrepared or kRefused. `port`: unset for
  /// any port. `or_any`: if the address is not this machine's own, as with a cluster's service name, the port is taken
  /// on all addresses.
  virtual void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) = 0;
  virtual void start(const Place& place) = 0;
  virtual void order(Order order, int signal) = 0;
  /// Tells the launcher or agent of the node to end with this status. A node without a launcher does nothing.
  virtual void end(int exit_status, const std::string& reason) = 0;
  /// Sends the messages that still wait for the node, for no longer than `patience`.
  virtual void flush(std::chrono::milliseconds patience) = 0;
  /// When the node last sent something; LoopTime::max() if it cannot be cut off.
  virtual LoopTime last_heard() const = 0;

  // The terminal of this process.

  /// Whether rank 0 runs here, reads from the terminal, and the terminal's keys reach it.
  virtual bool has_keyboard() const = 0;
  /// Called for each signal that this process receives, except those of job control, before the order that follows from
  /// it.
  virtual void note_signal(const Signal& signal) = 0;
  /// Stops the ranks of this machine until resume(), except the one that the terminal has stopped.
  virtual void pause(const Signal& signal) = 0;
  virtual void resume() = 0;

  // The output of its ranks.

  virtual bool is_shown_here() const = 0;  ///< False if the node shows its output on its own screen.
  /// REQUIRES: start() was called.
  virtual RankStreams streams(int64_t local_rank) const = 0;
};

}  // namespace yoke::launch
