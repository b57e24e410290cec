#include "yoke/keep/claim_keeper.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/device/process/info.h"
#include "yoke/program/program_tree.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kNever = Steady::time_point::max();
constexpr int kLookAtEndMs = 100;             ///< While processes are about to end.
constexpr std::chrono::seconds kSlowEnd{20};  ///< After SIGKILL, processes usually end at once.

/// The sooner of two limits for poll(), for which -1 is never.
int sooner(int a, int b) {
  if (a < 0 || b < 0) return std::max(a, b);
  return std::min(a, b);
}

/// Says the text on standard error, and on the user's other terminals.
void tell_user(const std::string& speaker, const std::string& text) {
  std::cerr << speaker << text << std::endl;
  tell_terminals(speaker + text, STDERR_FILENO);
}

/// " by root" if it was somebody else.
std::string by_whom(const program::SignalMessages::Message& message) {
  if (!message.is_from_process || message.sender == geteuid()) return "";
  return " by " + printable(device::user_name(int64_t{message.sender}));
}

constexpr bool is_passed_on(const program::SignalMessages::Message& message) { return message.signal != SIGCHLD; }

}  // namespace

ClaimEnd::ClaimEnd(const claim::Claim& claim) : claim_(claim), until_(claim.note().until) {
  // An heir comes later than the claim's begin.
  const auto begin = claim.is_shared() ? std::chrono::system_clock::now() : claim.note().since;
  if (until_) end_ = Steady::now() + (*until_ - begin);
}

bool ClaimEnd::is_over() {
  if (Steady::now() < end_) return false;
  const auto now = claim_.read().until;
  if (!now || *now <= *until_) return true;
  end_ += *now - *until_;
  until_ = now;
  return Steady::now() >= end_;
}

int ClaimEnd::milliseconds_left() const {
  constexpr int64_t kMinute = 60'000;
  if (end_ == kNever) return kMinute;
  const auto left = std::chrono::ceil<milliseconds>(end_ - Steady::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMinute));
}

int keep_for_program(claim::Claim& claim, const std::vector<std::string>& argv, const Environment& environment,
                     const std::string& speaker, UseWatch& watch, const std::function<void()>& started) {
  program::SignalMessages messages;
  program::ProgramTree tree;
  const auto failure = fmt::format("{}cannot start {}: ", speaker, printable(argv[0]));
  const pid_t program = spawn({.argv = argv,
                               .environment = environment.to_strings(),
                               .inherited_fds = claim.fds(),
                               .death_signal = SIGTERM,
                               .exec_failed = [&](int error) {
                                 for (const char* text : {failure.c_str(), strerrordesc_np(error), "\n"}) {
                                   [[maybe_unused]] const auto count = ::write(STDERR_FILENO, text, strlen(text));
                                 }
                               }});
  if (program < 0) throw system_error(errno, "starting a process for " + argv[0]);
  claim.set_program(program);
  if (started) started();
  ClaimEnd end(claim);
  std::optional<int> result;  // of the program
  bool is_asked = false;      // by SIGTERM, which the program got
  bool is_slow_told = false;  // the user knows that processes do not end
  auto slow_at = kNever;
  const auto end_tree = [&] {
    program::ProcessTimes keepers;
    for (const auto& heir : claim.living_heirs()) keepers.emplace(heir.pid, heir.start_ticks);
    const auto left = tree.end(program, keepers);
    if (slow_at == kNever) slow_at = Steady::now() + kSlowEnd;
    if (!left.empty() && !is_slow_told && Steady::now() >= slow_at) {
      is_slow_told = true;
      std::cerr << speaker << "process " << left[0].pid << " does not end, so the devices stay claimed until it does\n"
                << std::flush;
    }
    return left.empty();
  };
  const auto end_program = [&](const std::string& why) {
    std::cerr << speaker << why << "; the program gets SIGTERM, and SIGKILL in 10 s" << std::endl;
    end_tree();
  };
  for (;;) {
    int status = 0;
    if (!result && waitpid(program, &status, WNOHANG) == program) {
      result = shell_status(status);
    }
    const bool is_forced = tree.is_ending() || is_asked;
    // What a program leaves behind that ends by itself does not keep the devices.
    if (result && (!is_forced || end_tree())) {
      for (const auto& heir : claim.living_heirs()) {
        std::cerr << speaker << "a container of yoke keeps the devices until it ends (process " << heir.pid << ")"
                  << std::endl;
      }
      claim.release();
      return *result;
    }
    if (!tree.is_ending() && end.is_over()) end_program("the time of the claim is over");
    if (!tree.is_ending()) {
      const auto step = watch.look();
      tree.leave_out(watch.reader());
      if (step == claim::IdleStep::kWarn) tell_user(speaker, watch.warning());
      if (step == claim::IdleStep::kEnd) {
        tell_terminals(speaker + watch.farewell(), STDERR_FILENO);
        end_program(watch.farewell());
      }
    } else if (!result) {
      end_tree();
    }
    pollfd news[] = {{messages.fd(), POLLIN, 0}, {tree.is_ending() ? -1 : watch.fd(), POLLIN, 0}};
    const auto pause = tree.is_ending() ? kLookAtEndMs : sooner(end.milliseconds_left(), watch.milliseconds_left());
    if (poll(news, 2, pause) == 0) claim.beat();
    while (const auto message = messages.next()) {
      if (message->signal == SIGCHLD) tree.reap_orphans(program);
      // The terminal signals the whole group, except that a hangup reaches the leader of the session alone.
      const bool is_for_us = message->is_from_process || (message->signal == SIGHUP && getsid(0) == getpid());
      if (!is_for_us || !is_passed_on(*message) || result) continue;
      if (message->signal == SIGTERM && !tree.is_ending() && claim.read().is_forced) {
        end_program("the claim was released" + by_whom(*message));
        continue;
      }
      is_asked = is_asked || message->signal == SIGTERM;
      kill(program, message->signal);
    }
  }
}

void keep_for_a_time(claim::Claim& claim, const UniqueFd& process, const std::string& speaker, UseWatch& watch) {
  program::SignalMessages messages;
  ClaimEnd end(claim);
  const auto& purpose = claim.note().purpose;
  const auto which = purpose.empty() ? "" : fmt::format(" ({})", printable(purpose));
  auto why = "the time of the claim is over" + which;
  while (!end.is_over()) {
    // poll() ignores a descriptor of -1
    pollfd news[] = {{messages.fd(), POLLIN, 0}, {process.value(), POLLIN, 0}, {watch.fd(), POLLIN, 0}};
    if (poll(news, 3, sooner(end.milliseconds_left(), watch.milliseconds_left())) == 0) claim.beat();
    if (news[1].revents != 0) {
      why.clear();
      break;
    }
    const auto step = watch.look();
    if (step == claim::IdleStep::kWarn) tell_user(speaker, watch.warning());
    if (step == claim::IdleStep::kEnd) {
      why = watch.farewell();
      break;
    }
    bool is_ended = false;
    while (const auto message = messages.next()) {
      if (message->signal == SIGCHLD) continue;
      is_ended = true;
      // Whoever releases a claim of his own knows that.
      const auto whom = by_whom(*message);
      why = whom.empty() ? "" : "the claim was released" + whom + which;
    }
    if (is_ended) break;
  }
  claim.release();
  if (why.empty()) return;
  const auto* const it = claim.note().keys.size() == 1 ? "it" : "them";
  tell_user(speaker,
            fmt::format("{}; others may have {} now, although programs of a shell that was given {} still see {}", why,
                        watch.devices(), it, it));
}

}  // namespace yoke::keep
