// yoke/launch/node/local_node.h -- this machine as a node: its guardian, which starts the processes of its ranks, and
// their output.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/output/rank_reader.h"
#include "yoke/launch/process/master_port.h"
#include "yoke/launch/process/memory_kills.h"
#include "yoke/launch/process/process_states.h"
#include "yoke/launch/process/protocol.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

/// Checks that the limit of open files is high enough for the ranks of `spec`. Called before anything is planned.
/// Errors  kFailedPrecondition if the ranks need more open files than the hard limit allows.
void check_file_limit(const LaunchSpec& spec);

class LocalNode : public Node {
 public:
  /// `is_screen_here`: false if the output of ranks is sent to another host. `spec` and `observer` must outlive the
  /// node. Raises RLIMIT_NOFILE and becomes a child subreaper, because this process is expected to end afterwards.
  /// Errors  kInvalidArgument if there are fewer CPU masks than ranks, or a mask has no allowed CPU; as errno says if
  /// the log folder cannot be made.
  /// REQUIRES: one thread; SIGCHLD is blocked; SIGPIPE does not end the process.
  LocalNode(const LaunchSpec& spec, bool is_screen_here, NodeObserver& observer);
  ~LocalNode() override;

  void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) override;
  void start(const NodePlace& place) override;
  void tell_ranks(Order order, int signal) override;
  void replace(int64_t rank, const Replacement& replacement) override;
  void end(int, const std::string&) override {}      // this node ends with this process
  void flush(std::chrono::milliseconds) override {}  // messages to this node are not buffered
  LoopTime last_heard() const override { return LoopTime::max(); }
  bool has_keyboard() const override;
  void note_signal(const Signal& signal) override;
  void pause(const Signal& signal) override;
  void resume() override;
  bool is_shown_here() const override { return true; }
  RankStreams streams(int64_t local_rank) const override;
  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

  const Binding& binding() const { return binding_; }
  /// The plans of the last start, including that of the store.
  const std::vector<RankPlan>& plans() const { return plans_; }
  const std::string& run_folder() const { return run_folder_; }  ///< The folder of the logs; empty without logs.

 private:
  enum class State { kIdle, kRunning, kDraining };
  /// Whether a rank of this node is in this process's group, so that the terminal signals it directly.
  bool has_terminal() const { return terminal_group_ != 0; }
  void start_guardian();
  void take_master(const std::string& address, std::optional<uint16_t> port, bool or_any);
  void plan_ranks(const NodePlace& place);
  UniqueFd connect(const RankPlan& rank, bool is_err, LogStart log_start = LogStart::kEmpty);
  void open_filter(LineFilter& filter, const std::vector<std::string>& texts, const std::string& path);
  void send_plan();
  void send_rank(Message message, std::vector<int> descriptors, const RankPlan& plan, const UniqueFd& out,
                 const UniqueFd& err);
  void decide_on_preload();
  void check_room() const;
  void say_not_preloaded(const std::string& why);
  void read_message();
  void lose_guardian();
  void tell_early_report(const RankPlan& plan);
  void watch(NodeEvent& event);
  void tell_states(const std::vector<ProcessStates::Change>& changes);
  void tell_who_keeps();
  void tell_who_took_port();
  void finish();
  void send_signal(Message::Kind kind, int signal);
  void tell(const NodeEvent& event) { observer_.on_event(*this, event); }

  const LaunchSpec& spec_;
  NodeObserver& observer_;
  const bool is_screen_here_;
  const int terminal_group_;       ///< This process's group, if a rank of this node may use the terminal; else 0.
  int signal_of_terminal_ = 0;     ///< The last signal if it came from the terminal; else 0.
  const pid_t step_daemon_;        ///< The slurmstepd of the step that this process runs in; 0 outside of steps.
  int signal_of_step_ = 0;         ///< The last signal if it came from step_daemon_; else 0.
  const std::vector<pid_t> keep_;  ///< Children that this process had before it became a launcher.
  const Binding binding_;
  rlimit file_limit_{};  ///< The old limit, which ranks get.
  const std::string run_folder_;
  const std::string error_folder_;  ///< The folder of error files; empty if ranks write none.
  LineFilter out_filter_, err_filter_;
  RankReader reader_;
  ProcessStates states_;
  std::map<pid_t, int64_t> rank_of_;  ///< The ranks that run, which `states_` watches.
  MemoryKills memory_kills_;
  MasterPort master_;
  uint16_t master_port_ = 0;   ///< The port of the last start.
  UniqueFd port_claim_;        ///< Prevents other launchers from using claimed_port_ until this node ends.
  uint16_t claimed_port_ = 0;  ///< 0 if no port is claimed.
  State state_ = State::kIdle;
  std::vector<RankPlan> plans_;  ///< The plans of the last start. The store's plan, if any, is the last.
  UniqueFd control_;
  pid_t guardian_ = -1;
  bool has_message_ = false;  ///< Whether a message of the guardian can be read.
  bool has_decided_ = false;  ///< Whether the decision about preloading was made.
  bool may_preload_ = false;
  bool has_spares_ = false;   ///< NodePlace::has_spares of the last start.
  std::set<int64_t> keeps_;   ///< The ranks of which kKeeps was told.
  bool has_failed_ = false;   ///< Whether a rank of the last start has failed.
  bool is_guardian_ = false;  ///< Whether this process is the guardian.
};

}  // namespace yoke::launch
