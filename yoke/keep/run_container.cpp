#include "yoke/keep/run_container.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/keep/detail/container_keeper.h"
#include "yoke/keep/detail/keeping.h"
#include "yoke/program/child_error.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {
namespace {

/// Runs in the keeper's process. Returns its exit status.
int keep(const RunContainerOptions& options, UniqueFd channel, UniqueFd output, const Environment& environment,
         const Tell& tell) {
  int status = 0;
  const auto error = program::error_in_child([&] {
    auto kept = options.prepare(status);
    if (kept) status = keep_container(std::move(*kept), channel, std::move(output), environment, tell) ? 0 : 1;
  });
  if (!error.empty()) send_message(channel, {{"error", true}}, to_descriptor(error));
  return status;
}

/// The caller's part: runs the engine's client in the terminal.
class Front {
 public:
  Front(UniqueFd channel, pid_t keeper, bool is_detached, const Environment& environment, const Tell& tell)
      : channel_(std::move(channel)),
        keeper_(keeper),
        is_detached_(is_detached),
        environment_(environment),
        tell_(tell) {}

  /// `output`: for the output of a client that the keeper logs.
  int run(UniqueFd output) {
    UniqueFd file;
    const auto plan = receive_message(channel_, &file);
    if (!plan) return wait_for_child(keeper_);
    if (plan->contains("error")) {
      wait_for_child(keeper_);
      program::throw_child_error(text_of(file));
    }
    is_logged_ = plan->at("is_logged").get<bool>();
    program::SignalMessages messages;
    const auto planned = container::Client::from_bytes(text_of(file));
    file.reset();
    const auto& argv = planned.argv;
    program::WatchedProgram client(argv, {.environment = planned.environment(environment_).to_strings(),
                                          .in = is_logged_ ? kNullStream : kInheritedStream,
                                          .out = is_logged_     ? output.value()
                                                 : is_detached_ ? kNullStream
                                                                : kInheritedStream,
                                          .err = is_logged_ ? output.value() : kInheritedStream,
                                          .new_session = is_logged_});
    output.reset();
    send_message(channel_, {{"client", client.pid()}});
    const auto go = receive_message(channel_);
    if (!go || !go->contains("go")) {
      throw Error(ErrorCode::kUnavailable, "the process that holds the devices has ended");
    }
    if (const int error = client.start()) {
      if (error != E2BIG) throw system_error(error, "starting " + argv[0]);
      throw Error(ErrorCode::kInvalidArgument,
                  "starting {}: its arguments and variables are too long: Linux takes at most 128 KiB for each, and a "
                  "quarter of `ulimit -s` for all; put long values into a file, and mount it with -v",
                  argv[0]);
    }
    while (!is_done(client)) {
      pollfd news[] = {{messages.fd(), POLLIN, 0}, {channel_.value(), POLLIN, 0}};
      poll(news, 2, milliseconds_left());
      if (news[1].revents != 0) listen();
      client.reap();
      while (const auto message = messages.next()) pass_on(*message);
      if (client.status() && !told_status_) {
        send_message(channel_, {{"client_status", *client.status()}});
        told_status_ = true;
        give_up_at_ = Clock::now() + (is_detached_ && *client.status() == 0 ? kDetachedStart + std::chrono::seconds(5)
                                                                            : std::chrono::seconds(5));
      }
    }
    return finish(client.status().value_or(0));
  }

 private:
  int milliseconds_left() const { return give_up_at_ ? 50 : -1; }

  bool is_done(const program::WatchedProgram& client) const {
    if (is_logged_ && (is_running_ || failure_)) return true;  // the client stays
    if (!client.status()) return false;
    if (is_detached_ && (is_running_ || failure_)) return true;
    return is_ended_ || !channel_ || (give_up_at_ && Clock::now() >= *give_up_at_);
  }

  void listen() {
    UniqueFd file;
    const auto message = receive_message(channel_, &file);
    if (!message) return channel_.reset();
    if (message->contains("error")) error_ = text_of(file);
    if (message->contains("running")) is_running_ = true;
    if (message->contains("refused")) refusal_ = message->at("refused").get<std::string>();
    if (message->contains("failed")) failure_ = {message->at("failed").get<int>(), message->value("why", "")};
    if (message->contains("ended")) is_ended_ = true;
    if (message->contains("log")) log_ = message->at("log").get<std::string>();
  }

  void pass_on(const program::SignalMessages::Message& message) {
    if (program::asks_to_end(message.signal)) end_signal_ = message.signal;
    if (is_for_us(message) && message.signal != SIGCHLD) send_message(channel_, {{"signal", message.signal}});
  }

  int finish(int status) {
    if (!error_.empty()) program::throw_child_error(error_);
    if (end_signal_ && !is_running_ && !failure_) return 128 + *end_signal_;  // the engine may say that all is well
    if (!is_running_ && !failure_ && !refusal_) tell_(Told::kOutput, log_);
    if (is_detached_ && refusal_) throw Error(ErrorCode::kFailedPrecondition, "{}", printable(*refusal_));
    const bool has_come = is_running_ || failure_ || refusal_;
    // The engine's own failures. It passes on the statuses of the container's first program, which never came.
    if (!has_come && status != 0 && (status < 128 || status == 255)) status = kEngineFailed;
    if (is_detached_ && failure_) {
      tell_(Told::kNews, printable(failure_->second));
      return failure_->first;
    }
    if (is_detached_) return is_running_ ? 0 : status != 0 ? status : exit_status(ErrorCode::kUnavailable);
    if (!is_ended_ && channel_) {
      tell_(Told::kNews,
            "the engine's client has ended, but the container has not: `yoke container ps` shows it, and it keeps its "
            "devices until it ends");
    }
    return status;
  }

  UniqueFd channel_;
  pid_t keeper_;
  bool is_detached_;
  const Environment& environment_;
  const Tell& tell_;
  bool is_logged_ = false;
  std::string log_;
  std::string error_;  ///< Why the keeper has ended before the container, as bytes.
  bool is_running_ = false, is_ended_ = false, told_status_ = false;
  std::optional<int> end_signal_;  ///< The last signal that asked this command to end.
  std::optional<std::string> refusal_;
  std::optional<std::pair<int, std::string>> failure_;  ///< The exit status of a program that does not run, and why.
  std::optional<Clock::time_point> give_up_at_;
};

}  // namespace

std::filesystem::path meeting_parent(const Environment& environment) {
  const auto path = environment.value_or("XDG_RUNTIME_DIR", "");
  struct stat info = {};
  const bool is_own = path.starts_with('/') && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == geteuid() && (info.st_mode & 0077) == 0;
  return is_own ? path : "/tmp";
}

int run_container(const RunContainerOptions& options, const Environment& environment, const Tell& tell) {
  auto channel = make_socket_pair();
  auto output = options.is_detached ? make_pipe() : Pipe();
  const pid_t parent = getpid();
  const pid_t keeper = fork();
  if (keeper < 0) throw system_error(errno, "starting the process that holds the devices");
  if (keeper == 0) {
    channel.near.reset();
    output.write_end.reset();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // until the client is about to start
    if (getppid() != parent) _exit(1);
    _exit(keep(options, std::move(channel.far), std::move(output.read_end), environment, tell));
  }
  channel.far.reset();
  output.read_end.reset();
  return Front(std::move(channel.near), keeper, options.is_detached, environment, tell)
      .run(std::move(output.write_end));
}

}  // namespace yoke::keep
