// yoke/launch/job/launcher.h -- the common base of a job's head and of an agent: signals, a screen, answers to commands
// such as `yoke jobs`, and the event loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/launch/job/job.h"
#include "yoke/launch/job/job_server.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/output/screen.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

class Launcher : public NodeObserver, protected EventSource {
 protected:
  /// Blocks the signals that end a job or are passed on to its ranks, and reads them from a descriptor. `spec` must
  /// outlive the launcher.
  explicit Launcher(const LaunchSpec& spec);

  /// Opens the screen, if there is one, and begins to answer commands. REQUIRES: the guardian of this machine was
  /// started. (A guardian that starts later would inherit the descriptors opened here.)
  void open(bool has_screen);

  /// Runs one turn of the loop: signals, then `others`, then the screen and the clients of the job server.
  void turn(const std::vector<EventSource*>& others, std::chrono::milliseconds limit);
  void read_signals();

  void say(const std::string& text);
  /// Whether this launcher has lately not run for `time` or longer, so that its peers may have given it up. Then
  /// `loop_.stall()` says why.
  bool was_held_up(std::chrono::milliseconds time = {}) const;
  /// Stores the data of an event that job server clients need.
  void note(const NodeEvent& event);
  /// Returns the exit status of a job whose ranks have exit status `of_ranks`. A success becomes an error if some
  /// output is missing.
  int exit_code_with_output(int of_ranks) const { return screen_ ? screen_->exit_code(of_ranks) : of_ranks; }

  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

  /// Called for each signal except those of job control.
  virtual void on_signal(const Signal& signal) = 0;
  virtual void on_stop(StopHow how) = 0;
  virtual std::vector<Node*> nodes() = 0;

  const LaunchSpec& spec_;
  EventLoop loop_;
  UniqueFd signals_;
  bool has_signal_ = false;
  std::unique_ptr<Screen> screen_;  ///< Null if output is sent to the head.
  Job job_;                         ///< The description that clients of the job server receive.
  std::unique_ptr<JobServer> job_server_;

 private:
  void suspend(const Signal& signal);

  RecentLines no_lines_;
};

}  // namespace yoke::launch
