#include "yoke/device/worker.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace yoke::device {
namespace {

constexpr size_t kFirstThreads = 4;
constexpr std::chrono::milliseconds kPatience{2};  ///< If work has not begun after this time, threads are added.

}  // namespace

struct Worker::Job {
  std::function<void()> work;
  bool is_busy = false;  ///< Whether a requested run is not done yet.
  Clock::time_point busy_since;
  std::condition_variable done;
};

struct Crew::Shared {
  struct Thread {
    std::thread thread;
    bool is_working = false;
  };

  std::mutex mutex;
  std::condition_variable requested;
  std::deque<std::shared_ptr<Worker::Job>> queue;
  std::deque<Thread> threads;  ///< In a deque, elements keep their addresses.
  bool must_stop = false;

  void run(Thread& self) {
    std::unique_lock lock(mutex);
    for (;;) {
      requested.wait(lock, [&] { return must_stop || !queue.empty(); });
      if (must_stop) return;
      const auto job = std::move(queue.front());
      queue.pop_front();
      self.is_working = true;
      lock.unlock();
      job->work();
      lock.lock();
      self.is_working = false;
      job->is_busy = false;
      job->done.notify_all();
    }
  }
};

Crew::Crew() : shared_(std::make_shared<Shared>()) {}

Crew::~Crew() {
  std::vector<std::thread> idle;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->must_stop = true;
    shared_->queue.clear();
    shared_->requested.notify_all();
    for (auto& [thread, is_working] : shared_->threads) {
      if (is_working) {
        thread.detach();
      } else {
        idle.push_back(std::move(thread));
      }
    }
  }
  for (auto& thread : idle) thread.join();
}

/// REQUIRES: the mutex is held.
void Crew::hire(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    auto& self = shared_->threads.emplace_back();
    try {
      self.thread = std::thread([shared = shared_, &self] { shared->run(self); });
    } catch (const std::system_error&) {  // the limit of threads is reached
      shared_->threads.pop_back();
      if (shared_->threads.empty()) throw;
      return;
    }
  }
}

Worker::Worker(std::shared_ptr<Crew> crew, std::function<void()> work)
    : crew_(std::move(crew)), job_(std::make_shared<Job>()) {
  job_->work = std::move(work);
}

void Worker::request() {
  auto& shared = *crew_->shared_;
  const std::lock_guard lock(shared.mutex);
  job_->is_busy = true;
  job_->busy_since = Clock::now();
  shared.queue.push_back(job_);
  if (shared.threads.size() < kFirstThreads) crew_->hire(1);
  shared.requested.notify_one();
}

bool Worker::is_busy() const {
  const std::lock_guard lock(crew_->shared_->mutex);
  return job_->is_busy;
}

bool Worker::wait_until(Clock::time_point deadline) {
  auto& shared = *crew_->shared_;
  std::unique_lock lock(shared.mutex);
  const auto is_done = [&] { return !job_->is_busy; };
  while (!is_done() && Clock::now() < deadline) {
    const auto slice = shared.queue.empty() ? deadline : std::min(deadline, Clock::now() + kPatience);
    if (job_->done.wait_until(lock, slice, is_done)) break;
    crew_->hire(std::min(shared.queue.size(), shared.threads.size()));
  }
  return is_done();
}

Worker::Clock::duration Worker::busy_for() const {
  const std::lock_guard lock(crew_->shared_->mutex);
  return Clock::now() - job_->busy_since;
}

}  // namespace yoke::device
