// yoke/device/worker.h -- work that may get stuck for ever, on threads that one can leave behind.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace yoke::device {

/// Threads that many workers share: few as long as work is short, one for each worker when all of it gets stuck. For
/// most devices answer at once, and 64 threads would take longer to start and end than to read 64 devices.
class Crew {
 public:
  Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();  ///< Ends the threads, and leaves those behind that are stuck. What has not begun never will.

 private:
  friend class Worker;
  struct Shared;
  void hire(size_t count);
  std::shared_ptr<Shared> shared_;
};

/// Does `work` once for each request, on a thread of the crew. Thread-safe only in itself: one thread asks.
class Worker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `work` is kept alive by its thread and must own, or share, all that it uses: it may outlive Worker and Crew.
  Worker(std::shared_ptr<Crew> crew, std::function<void()> work);
  explicit Worker(std::function<void()> work) : Worker(std::make_shared<Crew>(), std::move(work)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Asks for one more round. REQUIRES: not is_busy().
  void request();

  bool is_busy() const;
  /// True when the last request is done; false at `deadline`. A worker that was busy before is not worth waiting for.
  bool wait_until(Clock::time_point deadline);
  /// How long ago the current round was asked for. REQUIRES: is_busy().
  Clock::duration busy_for() const;

 private:
  friend class Crew;
  struct Job;
  std::shared_ptr<Crew> crew_;
  std::shared_ptr<Job> job_;
};

}  // namespace yoke::device
