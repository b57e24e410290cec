#include "yoke/dist/detail/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/contract/program.h"

namespace yoke::dist {
namespace {

// A signal handler may use only lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);
constinit std::atomic<bool> is_told = false;
constinit std::atomic<int64_t> first_interrupt_ns = 0;  ///< On CLOCK_MONOTONIC; 0 before the first SIGINT.
constinit std::atomic<const char*> interrupt_notice = nullptr;

/// The program's previous action for each signal. Written before this file's handler, which reads it, is installed.
constinit std::array<struct sigaction, NSIG> previous_actions{};

/// Called by the handler of SIGINT if the program has no handler of its own.
void on_interrupt() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now_ns = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  int64_t first_ns = 0;
  if (first_interrupt_ns.compare_exchange_strong(first_ns, now_ns)) {
    const char* const notice = interrupt_notice.load();
    if (notice == nullptr) return;
    const int before = errno;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, notice, std::strlen(notice));
    errno = before;
  } else if (is_second_interrupt(first_ns, now_ns)) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);  // is blocked until the handler returns
  }
}

void on_signal(int number, siginfo_t* info, void* context) {
  is_told.store(true, std::memory_order_relaxed);
  if (number == SIGINT) note_interrupt();
  const auto& previous = previous_actions[static_cast<size_t>(number)];
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else if (number == SIGINT) {
    on_interrupt();
  }
}

}  // namespace

void heed_stop_signals(const std::vector<int>& signals, const char* notice) {
  static std::mutex mutex;
  static std::array<bool, NSIG> is_heeded{};
  const std::lock_guard lock(mutex);
  if (notice != nullptr) interrupt_notice = notice;
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

bool is_second_interrupt(int64_t first_ns, int64_t now_ns) { return now_ns - first_ns > 500'000'000; }

bool is_told_to_stop() { return is_told.load(std::memory_order_relaxed); }

}  // namespace yoke::dist
