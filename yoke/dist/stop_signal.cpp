#include "yoke/dist/detail/stop_signal.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may use only lock-free atomics
constinit std::atomic<bool> is_told = false;

/// The program's previous action for each signal. Written before this file's handler, which reads it, is installed.
constinit std::array<struct sigaction, NSIG> previous_actions{};

void on_signal(int number, siginfo_t* info, void* context) {
  is_told.store(true, std::memory_order_relaxed);
  const auto& previous = previous_actions[static_cast<size_t>(number)];
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
}

}  // namespace

void heed_stop_signals(const std::vector<int>& signals) {
  static std::mutex mutex;
  static std::array<bool, NSIG> is_heeded{};
  const std::lock_guard lock(mutex);
  for (const int number : signals) {
    struct sigaction action {};
    if (number <= 0 || number >= NSIG || sigaction(number, nullptr, &action) != 0) {
      throw Error(ErrorCode::kInvalidArgument, "WorldOptions::stop_signals has {}, which is not a signal", number);
    }
    auto& heeded = is_heeded[static_cast<size_t>(number)];
    const bool has_siginfo = (action.sa_flags & SA_SIGINFO) != 0;
    if (heeded || (!has_siginfo && action.sa_handler == SIG_IGN)) continue;
    previous_actions[static_cast<size_t>(number)] = action;
    // The handler keeps the mask and flags of the program's handler, except SA_RESETHAND, which would remove it after
    // one signal.
    if (!has_siginfo && action.sa_handler == SIG_DFL) action.sa_flags = SA_RESTART;
    action.sa_flags = (action.sa_flags & ~static_cast<int>(SA_RESETHAND)) | SA_SIGINFO;
    action.sa_sigaction = on_signal;
    if (sigaction(number, &action, nullptr) != 0) {
      throw Error(ErrorCode::kInvalidArgument, "WorldOptions::stop_signals has {} ({}), which cannot be handled",
                  number, strsignal(number));
    }
    heeded = true;
  }
}

bool is_told_to_stop() { return is_told.load(std::memory_order_relaxed); }

}  // namespace yoke::dist
