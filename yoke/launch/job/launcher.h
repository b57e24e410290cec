// yoke/launch/job/launcher.h -- what the head of a job and an agent have in common: signals, a screen, answers to
// `yoke jobs` and its like, and the loop around them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/launch/job/job.h"
#include "yoke/launch/job/job_server.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/output/screen.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

class Launcher : public NodeObserver, protected EventSource {
 protected:
  /// Takes the signals that end a job or are passed on to its ranks. `spec` outlives the launcher.
  explicit Launcher(const LaunchSpec& spec);

  /// Opens the screen, if there is one, and begins to answer. REQUIRES: the guardian of this machine was started, or it
  /// would inherit what is opened here.
  void open(bool has_screen);

  /// One turn of the loop: signals, then `others`, then the screen and those who ask.
  void turn(const std::vector<EventSource*>& others, std::chrono::milliseconds limit);
  void read_signals();

  void say(const std::string& text);
  /// Keeps what those who ask want to know of an event, and what a failure report needs.
  void note(const NodeEvent& event);
  /// The exit status of a job whose ranks have this one: another, if some of their output is missing.
  int exit_code_with_output(int of_ranks) const { return screen_ ? screen_->exit_code(of_ranks) : of_ranks; }

  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

  /// A signal that is not one of job control.
  virtual void on_signal(const Signal& signal) = 0;
  virtual void on_stop(StopHow how) = 0;
  virtual std::vector<Node*> nodes() = 0;

  const LaunchSpec& spec_;
  EventLoop loop_;
  UniqueFd signals_;
  bool has_signal_ = false;
  std::unique_ptr<Screen> screen_;  ///< Null: output is sent to the head.
  Job job_;                         ///< As those who ask see it.
  FailureFacts facts_;              ///< Of this attempt.
  std::unique_ptr<JobServer> job_server_;

 private:
  void suspend(const Signal& signal);

  RecentLines no_lines_;
};

}  // namespace yoke::launch
