#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "yoke/base/clock.h"
#include "yoke/base/signal_name.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/profile/record_session.h"

namespace yoke::profile {
namespace {

/// How long a program may take to end after the recording. It may write a checkpoint.
constexpr std::chrono::seconds kGrace{30};

Environment observed(Environment environment, const std::string& socket) {
  environment.set(variable::kProfile, socket);
  // Kineto complains on standard error where it finds no GPU; yoke reports errors itself.
  if (!environment.contains("KINETO_LOG_LEVEL")) environment.set("KINETO_LOG_LEVEL", "99");
  return environment;
}

/// A program of the user, from its start to its end.
class ProfiledProgram {
 public:
  ProfiledProgram(const RecordOptions& options, const ProgramOptions& program)
      : options_(program),
        session_(options, 0),
        program_(program.argv, {.environment = observed(options.environment, session_.recorder.listen()).to_strings(),
                                .out = program.out}) {}

  int run() {
    // A report that nobody reads is an error and ends nothing. The program has its own setting, because it exists.
    signal(SIGPIPE, SIG_IGN);
    launch::become_subreaper();
    if (const int error = program_.start(); error != 0) {
      options_.on_recorded({.traces = {}, .failure = system_error(error, "cannot run " + options_.argv[0])});
      return error == ENOENT ? 127 : 126;
    }
    while (!program_.status()) {
      session_.wait_for_news(std::chrono::milliseconds(is_stopping_ ? 100 : 1000));
      pass_signals();
      follow();
      program_.reap();
    }
    follow();
    if (!is_over_) result_ = options_.on_recorded({.traces = {}, .failure = without_traces()});
    if (is_stopping_) return result_;
    return *program_.status() != 0 ? *program_.status() : result_;
  }

 private:
  void pass_signals() {
    while (const auto message = session_.messages.next()) {
      // Signals from the terminal reach the program, too.
      if (message->signal != SIGCHLD && message->is_from_process) kill(program_.pid(), message->signal);
    }
    if (is_stopping_ && Clock::now() > kill_at_) kill(program_.pid(), SIGKILL);
  }

  void follow() {
    session_.recorder.handle();
    const auto& recording = session_.recorder.recording();
    if (is_over_ || !(recording.is_complete() || recording.failure())) return;
    is_over_ = true;
    result_ = options_.on_recorded(recorded());
    if (!options_.stops) return;
    is_stopping_ = true;
    kill_at_ = Clock::now() + kGrace;
    launch::signal_descendants(getpgrp(), SIGTERM);
  }

  Recorded recorded() const {
    const auto& recording = session_.recorder.recording();
    if (!recording.is_complete()) {
      return {.traces = {}, .failure = Error(ErrorCode::kFailedPrecondition, "{}", *recording.failure())};
    }
    try {
      return {.traces = session_.take_traces()};
    } catch (const Error& error) {
      return {.traces = {}, .failure = error};
    }
  }

  Error without_traces() const {
    const int status = *program_.status();
    if (session_.recorder.recording().has_rank()) {
      return {ErrorCode::kFailedPrecondition,
              "{} before the recording was complete: {}; --wait and --steps make it shorter",
              status == 0 ? "the program ended" : describe_end(status), session_.recorder.recording().progress()};
    }
    if (status != 0) return {ErrorCode::kFailedPrecondition, "{} before a step was seen", describe_end(status)};
    return {ErrorCode::kFailedPrecondition,
            "no step was seen, because no optimizer of yoke or torch.optim made one on this host; a C++ program with "
            "another optimizer calls yoke::train::end_step() after each step, and a container needs the variables "
            "{} and PYTHONPATH, this network namespace and {}",
            variable::kProfile, session_.folder.path().parent_path().native()};
  }

  const ProgramOptions& options_;
  RecordSession session_;
  program::WatchedProgram program_;
  bool is_over_ = false;      ///< The traces were handed over, or why there are none.
  bool is_stopping_ = false;  ///< The program was told to end.
  int result_ = 0;
  Clock::time_point kill_at_;
};

}  // namespace

int record_program(const RecordOptions& options, const ProgramOptions& program) {
  return ProfiledProgram(options, program).run();
}

}  // namespace yoke::profile
