// yoke/device/worker.h -- runs work that may hang forever, on threads that can be abandoned.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace yoke::device {

/// Threads that many workers share. Short work needs few threads. If all work hangs, there is one thread per worker.
/// Most devices answer at once, and starting and ending 64 threads would take longer than reading 64 devices.
class Crew {
 public:
  Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();  ///< Ends the threads and abandons those that hang. Drops work that has not begun.

 private:
  friend class Worker;
  struct Shared;
  void hire(size_t count);
  std::shared_ptr<Shared> shared_;
};

/// Runs `work` once per request, on a thread of a Crew. Only one thread may call the members.
class Worker {
 public:
  using Clock = std::chrono::steady_clock;

  /// The thread that runs `work` keeps it alive. `work` must own or share all that it uses, because it may outlive the
  /// Worker and the Crew.
  Worker(std::shared_ptr<Crew> crew, std::function<void()> work);
  explicit Worker(std::function<void()> work) : Worker(std::make_shared<Crew>(), std::move(work)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Requests one run of the work. REQUIRES: not is_busy().
  void request();

  bool is_busy() const;
  /// Waits until the last request is done and returns true, or returns false at `deadline`. Do not wait again for a run
  /// that missed an earlier deadline, because it may hang for ever.
  bool wait_until(Clock::time_point deadline);
  /// The time since the current run was requested. REQUIRES: is_busy().
  Clock::duration busy_for() const;

 private:
  friend class Crew;
  struct Job;
  std::shared_ptr<Crew> crew_;
  std::shared_ptr<Job> job_;
};

/// Runs a function that may hang on a thread of its own. `ask` must own or share all that it uses, as for a Worker.
template <typename T>
class Question {
 public:
  explicit Question(std::function<T()> ask) : worker_([ask = std::move(ask), answer = answer_] { *answer = ask(); }) {
    worker_.request();
  }

  /// nullopt if the function did not return in time.
  std::optional<T> answer(Worker::Clock::time_point deadline) {
    return worker_.wait_until(deadline) ? *answer_ : std::nullopt;
  }
  bool is_stuck() const { return worker_.is_busy(); }

 private:
  std::shared_ptr<std::optional<T>> answer_ = std::make_shared<std::optional<T>>();
  Worker worker_;
};

}  // namespace yoke::device
