// yoke/launch/node/node.h -- what the head of a job needs of a node, be it this one or one at the end of a connection.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/error_file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/order.h"

namespace yoke::launch {

class Node;

/// What a node is, told once.
struct NodeInfo {
  std::string host;
  std::string address;  ///< Where other nodes reach it; empty: unknown.
  int64_t num_ranks = 1;
  std::optional<int64_t> node_rank;  ///< That it was given by hand.
  bool has_store = false;            ///< It can serve the ranks' store by a program.
  std::string nnodes;                ///< "2" or "2:4" as it was started with; empty: the head did that.
  int64_t max_restarts = 0;          ///< As it was started with; 0: not given, the head's counts.
  bool is_return = false;            ///< It was a node of this job before, and was cut off.
};

/// What a node tells. Ranks are numbered over all nodes.
struct NodeEvent {
  enum class Kind {
    kReady,         ///< It can take part. info
    kPrepared,      ///< value: the port that it holds for the ranks' store.
    kRefused,       ///< It cannot prepare or start. text: why; value: the exit status that this means.
    kStarted,       ///< rank, pid
    kCannotRun,     ///< rank, value: errno of exec
    kCannotStart,   ///< rank, value: errno of fork
    kExited,        ///< rank, pid, value: wait status
    kStoreEnded,    ///< The program that serves the ranks' store, before the ranks. pid, value: wait status
    kLeftBehind,    ///< pid of a process that SIGKILL does not end
    kGuardianLost,  ///< pid
    kReport,        ///< Of a rank that ended: report, and text: its log, or empty.
    kOnlyStore,     ///< Its ranks have ended; the program that serves the ranks' store waits for kEndStore.
    kEnded,         ///< All that was started has ended.
    kDone,          ///< And all that it printed was told, and the reports.
    kSignal,        ///< The launcher of that node was told to end, by signal `value`.
    kNotice,        ///< text: for the user. value: 1 if it says that output is missing for good.
    kLost,          ///< The connection is gone. text: how.
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
  /// `bytes`: nothing at the end of the stream.
  virtual void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) = 0;
  virtual bool has_room(bool is_err) const = 0;  ///< Whether more output is wanted now.
};

/// Owned by a loop: it polls what add_polls() asks for and hands the answers to handle().
class Node {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;

  /// Takes a port for the ranks' store and holds it: kPrepared or kRefused follows. `port`: unset for any.
  /// `or_any`: if the address is not this machine's own, as behind a cluster's service name, all of its addresses.
  virtual void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) = 0;
  virtual void start(const Place& place) = 0;
  virtual void order(Order order, int signal) = 0;

  virtual void add_polls(std::vector<pollfd>& polls) = 0;
  virtual void handle(const std::vector<pollfd>& polls, size_t first) = 0;
  virtual std::optional<Time> next_time() const = 0;  ///< When handle() is to be called although nothing happened.
};

}  // namespace yoke::launch
