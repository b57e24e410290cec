#include "yoke/device/process/kill.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/signal_name.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Victim held(KillTarget target) {
  Victim victim{.target = std::move(target)};
  auto& refusal = victim.target.refusal;
  if (refusal) return victim;
  try {
    victim.handle.emplace(victim.target.pid, *victim.target.process.info.start_ticks);
    if (victim.handle->wait_for_end(milliseconds(0))) {
      victim.result = "ended";  // a zombie has ended already
      return victim;
    }
    victim.handle->signal(0);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) {
      victim.result = "ended";  // it ended after it was listed
    } else if (error.code() == ErrorCode::kPermissionDenied) {
      refusal = {error.code(),
                 fmt::format("belongs to {}; only that user or root may end it", victim.target.process.info.user)};
    } else {
      refusal = {error.code(), error.what()};
    }
  }
  return victim;
}

void send(std::vector<Victim>& victims, int signal) {
  for (auto& victim : victims) {
    if (!victim.is_open()) continue;
    try {
      victim.handle->signal(signal);
      // A stopped process would not act on the signal.
      if (is_ending(signal) && signal != SIGKILL) victim.handle->signal(SIGCONT);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) {
        victim.result = "ended";
      } else {
        victim.target.refusal = {error.code(), error.what()};
      }
    }
  }
}

/// Waits until all victims have ended or the time is over. Those that have ended get `result`.
void wait_for_end(std::vector<Victim>& victims, const KillOptions& options, const std::string& result) {
  const auto until = Clock::now() + options.wait;
  const auto tell = [&](int64_t num_left, milliseconds left) {
    if (options.on_wait) options.on_wait({num_left, options.wait - left, left});
  };
  for (;;) {
    int64_t num_left = 0;
    for (auto& victim : victims) {
      if (victim.is_open() && victim.handle->wait_for_end(milliseconds(0))) victim.result = result;
      num_left += victim.is_open() ? 1 : 0;
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (num_left == 0 || left.count() <= 0) break;
    tell(num_left, left);
    const auto first = std::ranges::find_if(victims, &Victim::is_open);
    first->handle->wait_for_end(std::min(left, milliseconds(100)));
  }
  tell(0, std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now())));
}

std::string why_it_lives(const Victim& victim, const KillOptions& options) {
  const auto time = format_duration(std::chrono::duration<double>(options.wait));
  if (!options.forces && options.signal != SIGKILL) {
    return fmt::format("did not end within {} after {}; --force sends SIGKILL then", time, signal_name(options.signal));
  }
  const bool is_held = describe_process(victim.target.pid).state == 'D';
  return fmt::format("did not end within {} after SIGKILL{}", time,
                     is_held ? ": it waits inside the kernel (state D), until its driver or file system answers" : "");
}

}  // namespace

KillAsker kill_asker() {
  KillAsker asker{.pid = getpid()};
  for (int64_t pid = getppid(); pid > 1 && asker.ancestors.insert(pid).second;) {
    pid = describe_process(pid).parent_pid.value_or(0);
  }
  return asker;
}

std::vector<Victim> hold(std::vector<KillTarget> targets) {
  std::vector<Victim> victims;
  std::ranges::transform(std::move(targets), std::back_inserter(victims), held);
  return victims;
}

void end(std::vector<Victim>& victims, const KillOptions& options) {
  send(victims, options.signal);
  if (is_ending(options.signal) && options.wait.count() > 0) {
    wait_for_end(victims, options, "ended");
    if (options.forces && std::ranges::any_of(victims, &Victim::is_open)) {
      send(victims, SIGKILL);
      wait_for_end(victims, options, "killed");
    }
  }
  for (auto& victim : victims) {
    if (!victim.is_open()) continue;
    if (!is_ending(options.signal) || options.wait.count() <= 0) {
      victim.result = "signaled";
    } else {
      victim.result = "survived";
      victim.target.refusal = {ErrorCode::kTimeout, why_it_lives(victim, options)};
    }
  }
}

}  // namespace yoke::device
