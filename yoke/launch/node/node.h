// yoke/launch/node/node.h -- the interface to a node: this machine, or a host that is connected to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/contract/error_file.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/plan/restart_limit.h"
#include "yoke/launch/process/order.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

class Node;

/// The data by which a node introduces itself.
struct NodeInfo {
  std::string host;
  std::string address;  ///< The address at which other nodes reach this one; empty if unknown.
  int64_t num_ranks = 1;
  std::optional<int64_t> node_rank;  ///< The node rank that the user gave the node.
  std::string role = "default";      ///< Its --role.
  std::string nnodes;                ///< Its --nnodes, such as "2" or "2:4"; empty if the head started it.
  RestartLimit restarts;             ///< Its --max-restarts.
  int64_t replacements = 0;          ///< LaunchSpec::replacements, of which its ranks know.
  int64_t num_spares = 0;            ///< Its --spares.
  bool is_return = false;            ///< Whether it was a node of this job before, and was cut off.
};

/// An event that a node reports. Ranks are numbered over all nodes. Each comment names the members that the kind sets.
struct NodeEvent {
  enum class Kind {
    kReady,         ///< It can take part in a start. info: its introduction.
    kPrepared,      ///< value: the port that it holds for the ranks' TCPStore.
    kRefused,       ///< It cannot prepare or start. text: why; value: the job's exit status; rank: the one that it
                    ///< cannot start again while others run, else -1.
    kStarted,       ///< A rank was started. rank, pid
    kCannotRun,     ///< exec failed. rank, value: errno
    kCannotStart,   ///< fork failed. rank, value: errno
    kExited,        ///< The rank's process has ended. rank, pid, value: wait status, text: more about it; may be
                    ///< empty; kept_step
    kState,         ///< The rank's process was stopped, waits in the kernel, or goes on. rank, pid, value: as in ps(1)
    kKeeps,         ///< The rank keeps a state of its training from now on, or none any more. rank, value: 1 or 0
    kStoreEnded,    ///< The process that serves the ranks' TCPStore ended before the ranks. pid, value: wait status
    kLeftBehind,    ///< SIGKILL does not end the process `pid`. pid
    kGuardianLost,  ///< The guardian was killed. pid
    kReport,        ///< A rank has ended. report: its error report; text: its log, or empty; num_steps; value: 1 if
                    ///< other ranks run, and another such report follows when all have ended
    kOnlyStore,     ///< Its ranks have ended; the process that serves the ranks' TCPStore waits for kEndStore.
    kEnded,         ///< All processes that were started have ended.
    kDone,          ///< All output and all reports of the ranks were delivered.
    kSignal,        ///< The launcher of that node received signal `value`, which asks it to end.
    kNotice,        ///< text: a message for the user. value: 1 if output is lost for good.
    kLost,          ///< The connection has ended. text: why; value: a Loss
  };
  enum class Loss {
    kClosed,
    kSilent,   ///< The node has sent nothing for too long.
    kGivenUp,  ///< The node has received nothing from the head for too long, which may have been stopped.
  };
  Kind kind = Kind::kDone;
  int64_t rank = -1;
  int pid = 0;
  int value = 0;
  std::string text;
  std::optional<ErrorReport> report;
  std::optional<int64_t> num_steps;  ///< The steps of the training that the rank has reported.
  std::optional<int64_t> kept_step;  ///< Of the newest state that the rank has kept for a process in its place.
  std::optional<NodeInfo> info;
  /// Of kReport: what the rank printed last, as far as its node has a screen; otherwise the head adds it.
  std::string last_line = {};
  std::chrono::system_clock::time_point seen_at = {};  ///< When it came, by the head's clock. The head adds it.
};

class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void on_event(Node& node, const NodeEvent& event) = 0;
  /// `bytes`: nullopt at the end of the stream.
  virtual void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) = 0;
  virtual bool has_room(bool is_err) const = 0;  ///< Whether the observer can take more output now.
};

/// The destinations of a rank's two streams.
struct RankStreams {
  StreamPlan out, err;
};

class Node : public EventSource {
 public:
  // The job.

  /// Takes a port for the ranks' TCPStore and holds it. The node then reports kPrepared or kRefused. `port`: unset for
  /// any port. `or_any`: if the address is not this machine's own (as with a cluster's service name), the port is taken
  /// on all addresses of the machine.
  virtual void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) = 0;
  virtual void start(const NodePlace& place) = 0;
  virtual void tell_ranks(Order order, int signal) = 0;
  struct Replacement {
    int pid = 0;  ///< Of the process that has ended.
    int64_t number = 0;
  };
  /// Starts a rank again while others run.
  virtual void replace(int64_t rank, const Replacement& replacement) = 0;
  /// Tells the node's launcher or agent to end with this status. Does nothing on a node without a launcher of its own.
  virtual void end(int exit_status, const std::string& reason) = 0;
  /// Sends the messages that are queued for the node, for at most `patience`.
  virtual void flush(std::chrono::milliseconds patience) = 0;
  /// When the node last sent something. LoopTime::max() for a node that cannot be cut off.
  virtual LoopTime last_heard() const = 0;

  // The terminal of this process.

  /// Whether a rank runs here that reads from the terminal and gets the signals of its keys.
  virtual bool has_keyboard() const = 0;
  /// Called for each signal to this process, except those of job control, before the order that the signal causes.
  virtual void note_signal(const Signal& signal) = 0;
  /// Stops the ranks of this machine until resume(), except a rank that the terminal has already stopped.
  virtual void pause(const Signal& signal) = 0;
  virtual void resume() = 0;

  // The output of its ranks.

  virtual bool is_shown_here() const = 0;  ///< False if the node shows its output on its own screen.
  /// REQUIRES: start() was called.
  virtual RankStreams streams(int64_t local_rank) const = 0;
};

}  // namespace yoke::launch
