#include "yoke/keep/run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>

#include "yoke/base/clock.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/keep/detail/keeping.h"
#include "yoke/program/program_tree.h"

namespace yoke::keep {
namespace {

constexpr int kLookAtEndMs = 100;             ///< While processes are about to end.
constexpr std::chrono::seconds kSlowEnd{20};  ///< After SIGKILL, processes usually end at once.

/// A program under a claim, and all that it starts.
class Run {
 public:
  Run(Acquired& acquired, const Tell& tell)
      : claim_(*acquired.allocation.claim), tell_(tell), watch_(claim_, acquired.watch), end_(claim_) {}

  void start(const std::vector<std::string>& argv, const Environment& environment) {
    auto failure = make_pipe();
    program_ = spawn({.argv = argv,
                      .environment = environment.to_strings(),
                      .inherited_fds = claim_.fds(),
                      .death_signal = SIGTERM,
                      .exec_failed = [&](int error) {
                        [[maybe_unused]] const auto count = write(failure.write_end.value(), &error, sizeof error);
                      }});
    if (program_ < 0) throw system_error(errno, "starting a process for " + argv[0]);
    failure_ = std::move(failure.read_end);
    name_ = argv[0];
    claim_.set_program(program_);
  }

  /// Returns the exit status of the program once its devices have been given back.
  int wait() {
    for (;;) {
      look_at_program();
      // What a program leaves behind that ends by itself does not keep the devices.
      const bool is_forced = tree_.is_ending() || is_asked_;
      if (status_ && (!is_forced || end_tree())) return finish();
      if (!tree_.is_ending() && end_.is_over()) end_program("the time of the claim is over");
      if (!tree_.is_ending()) {
        look_at_use();
      } else if (!status_) {
        end_tree();
      }
      pollfd news[] = {{messages_.fd(), POLLIN, 0}, {tree_.is_ending() ? -1 : watch_.fd(), POLLIN, 0}};
      const auto pause =
          tree_.is_ending() ? kLookAtEndMs : sooner(end_.milliseconds_left(), watch_.milliseconds_left());
      if (poll(news, 2, pause) == 0) claim_.beat();
      while (const auto message = messages_.next()) hear(*message);
    }
  }

 private:
  void look_at_program() {
    int status = 0;
    if (status_ || waitpid(program_, &status, WNOHANG) != program_) return;
    status_ = shell_status(status);
    int error = 0;
    if (read(failure_.value(), &error, sizeof error) != sizeof error) return;
    tell_(Told::kNews, fmt::format("cannot start {}: {}", printable(name_), std::generic_category().message(error)));
  }

  int finish() {
    for (const auto& heir : claim_.living_heirs()) {
      tell_(Told::kNews, fmt::format("a container of yoke keeps the devices until it ends (process {})", heir.pid));
    }
    claim_.release();
    return *status_;
  }

  /// Signals what is due. Returns whether all processes have ended.
  bool end_tree() {
    program::ProcessTimes keepers;
    for (const auto& heir : claim_.living_heirs()) keepers.emplace(heir.pid, heir.start_ticks);
    const auto left = tree_.end(program_, keepers);
    if (!slow_at_) slow_at_ = Clock::now() + kSlowEnd;
    if (!left.empty() && !is_slow_told_ && Clock::now() >= *slow_at_) {
      is_slow_told_ = true;
      tell_(Told::kNews,
            fmt::format("process {} does not end, so the devices stay claimed until it does", left[0].pid));
    }
    return left.empty();
  }

  void end_program(const std::string& why) {
    tell_(Told::kNews, why + "; the program gets SIGTERM, and SIGKILL in 10 s");
    end_tree();
  }

  /// The site may end claims whose devices are idle.
  void look_at_use() {
    const auto step = watch_.look();
    tree_.leave_out(watch_.reader());
    if (step == claim::IdleStep::kWarn) tell_everywhere(tell_, watch_.warning());
    if (step != claim::IdleStep::kEnd) return;
    tell_(Told::kElsewhere, watch_.farewell());
    end_program(watch_.farewell());
  }

  void hear(const program::SignalMessages::Message& message) {
    if (message.signal == SIGCHLD) return tree_.reap_orphans(program_);
    if (!is_for_us(message) || status_) return;
    if (message.signal == SIGTERM && !tree_.is_ending() && claim_.read().is_forced) {
      return end_program("the claim was released" + by_whom(message));
    }
    is_asked_ = is_asked_ || message.signal == SIGTERM;
    kill(program_, message.signal);
  }

  claim::Claim& claim_;
  const Tell& tell_;
  program::SignalMessages messages_;
  program::ProgramTree tree_;
  UseWatch watch_;
  ClaimEnd end_;
  std::string name_;
  pid_t program_ = -1;
  UniqueFd failure_;           ///< Has the errno of a program that could not be executed.
  std::optional<int> status_;  ///< Of the program, once it has ended.
  bool is_asked_ = false;      ///< By SIGTERM, which the program got.
  bool is_slow_told_ = false;  ///< The user knows that processes do not end.
  std::optional<Clock::time_point> slow_at_;
};

}  // namespace

int run(Acquired& acquired, const std::vector<std::string>& argv, Environment environment, const Tell& tell) {
  assign(acquired.assignments, environment);
  Run program(acquired, tell);
  program.start(argv, environment);
  acquired.end_wait();
  return program.wait();
}

}  // namespace yoke::keep
