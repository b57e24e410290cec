#include "yoke/device/worker.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace yoke::device {

struct Worker::Shared {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable requested, done;
  bool is_busy = false;
  bool must_stop = false;
  Clock::time_point busy_since;
};

Worker::Worker(std::function<void()> work) : shared_(std::make_shared<Shared>()) {
  shared_->work = std::move(work);
  thread_ = std::thread([shared = shared_] {
    std::unique_lock lock(shared->mutex);
    for (;;) {
      shared->requested.wait(lock, [&] { return shared->is_busy || shared->must_stop; });
      if (!shared->is_busy) return;
      lock.unlock();
      shared->work();
      lock.lock();
      shared->is_busy = false;
      shared->done.notify_all();
    }
  });
}

Worker::~Worker() {
  bool is_stuck = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->must_stop = true;
    is_stuck = shared_->is_busy;
    shared_->requested.notify_all();
  }
  if (is_stuck) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::request() {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_busy = true;
  shared_->busy_since = Clock::now();
  shared_->requested.notify_all();
}

bool Worker::is_busy() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_busy;
}

bool Worker::wait_until(Clock::time_point deadline) {
  std::unique_lock lock(shared_->mutex);
  return shared_->done.wait_until(lock, deadline, [&] { return !shared_->is_busy; });
}

Worker::Clock::duration Worker::busy_for() const {
  const std::lock_guard lock(shared_->mutex);
  return Clock::now() - shared_->busy_since;
}

}  // namespace yoke::device
