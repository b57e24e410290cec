#include "yoke/launch/job/launcher.h"

#include <fmt/format.h>

namespace yoke::launch {

Launcher::Launcher(const LaunchSpec& spec)
    : spec_(spec), signals_(take_signals(spec.stop_signals)), job_(describe_job(spec)) {}

void Launcher::open(bool has_screen) {
  if (has_screen) screen_ = std::make_unique<Screen>(spec_.name, spec_.color, spec_.environment, spec_.keyboard_rank);
  job_server_ = std::make_unique<JobServer>(job_, screen_ ? screen_->recent_lines() : no_lines_,
                                            [this](StopHow how) { on_stop(how); });
}

void Launcher::turn(const std::vector<EventSource*>& others, std::chrono::milliseconds limit) {
  std::vector<EventSource*> sources = {this};
  sources.insert(sources.end(), others.begin(), others.end());
  if (screen_) sources.push_back(screen_.get());
  sources.push_back(job_server_.get());
  loop_.turn(sources, limit);
}

void Launcher::add_to(WaitSet& waits) { waits.read(signals_.value(), has_signal_); }

void Launcher::handle(LoopTime) {
  if (has_signal_) read_signals();
}

void Launcher::read_signals() {
  while (const auto signal = next_signal(signals_)) {
    if (is_job_control(signal->number)) {
      suspend(*signal);
      continue;
    }
    for (auto* const node : nodes()) node->note_signal(*signal);
    on_signal(*signal);
  }
}

/// Handles Ctrl-Z: stops the ranks of this machine and this process, and continues them together later.
void Launcher::suspend(const Signal& signal) {
  if (screen_) screen_->hide_progress(true);  // the shell prints its prompt on that line
  for (auto* const node : nodes()) node->pause(signal);
  stop_by(signal.number);
  for (auto* const node : nodes()) node->resume();
  if (screen_) screen_->hide_progress(false);
  loop_.read_clock();  // the process may have been stopped for hours
}

void Launcher::say(const std::string& text) {
  if (screen_) screen_->say(fmt::format("{}: {}", spec_.name, text));
}

bool Launcher::was_held_up(std::chrono::milliseconds time) const {
  constexpr std::chrono::seconds kLately{5};
  return loop_.stall() && loop_.stall()->length >= time && loop_.now() - loop_.stall()->end < kLately;
}

void Launcher::note(const NodeEvent& event) {
  switch (event.kind) {
    case NodeEvent::Kind::kStarted: return job_.on_started(event.rank, event.pid);
    case NodeEvent::Kind::kExited: return job_.on_exited(event.rank, event.value);
    case NodeEvent::Kind::kNotice:
      if (screen_ && event.value != 0) screen_->note_loss();
      return;
    default: return;
  }
}

}  // namespace yoke::launch
