// yoke/device/worker.h -- a thread that does one kind of work when asked, and may get stuck in it for ever.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace yoke::device {

/// Does `work` once for each request, on a thread of its own. Thread-safe only in itself: one thread asks.
class Worker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `work` is kept alive by the thread and must own, or share, all that it uses: it may outlive the Worker.
  explicit Worker(std::function<void()> work);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  ///< Ends the thread, or, when it is stuck, leaves it behind.

  /// Asks for one more round. REQUIRES: not is_busy().
  void request();

  bool is_busy() const;
  /// True when the last request is done; false at `deadline`. A worker that was busy before is not worth waiting for.
  bool wait_until(Clock::time_point deadline);
  /// How long the current round has taken. REQUIRES: is_busy().
  Clock::duration busy_for() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace yoke::device
