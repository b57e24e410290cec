#include "yoke/device/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace yoke::device {
namespace {

using namespace std::chrono_literals;

TEST(Worker, WorksOncePerRequest) {
  std::atomic<int> rounds = 0;
  Worker worker([&] { ++rounds; });
  for (int i = 1; i <= 3; ++i) {
    worker.request();
    ASSERT_TRUE(worker.wait_until(Worker::Clock::now() + 10s));
    EXPECT_EQ(rounds, i);
    EXPECT_FALSE(worker.is_busy());
  }
}

TEST(Worker, OneThatIsStuckIsLeftBehind) {
  const auto released = std::make_shared<std::promise<void>>();
  const auto finished = std::make_shared<std::promise<void>>();
  const auto begun = std::make_shared<std::promise<void>>();
  auto end = finished->get_future();
  {
    // The thread outlives the Worker, so these are shared with it, as the class requires.
    Worker worker([released, finished, begun] {
      begun->set_value();
      released->get_future().wait();
      finished->set_value();
    });
    worker.request();
    begun->get_future().wait();  // before the work has begun, the destructor would drop it
    EXPECT_FALSE(worker.wait_until(Worker::Clock::now() + 10ms));
    EXPECT_TRUE(worker.is_busy());
    EXPECT_GE(worker.busy_for(), 10ms);
  }  // the destructor returns although the thread hangs
  released->set_value();
  EXPECT_EQ(end.wait_for(60s), std::future_status::ready);
}

TEST(Question, HasNoAnswerAsLongAsItsFunctionHangs) {
  std::promise<int> released;
  Question<int> question([future = released.get_future().share()] { return future.get(); });
  EXPECT_EQ(question.answer(Worker::Clock::now()), std::nullopt);
  EXPECT_TRUE(question.is_stuck());
  released.set_value(7);
  EXPECT_EQ(question.answer(Worker::Clock::now() + 60s), 7);
  EXPECT_FALSE(question.is_stuck());
}

TEST(Crew, HasAThreadForEachWhenAllAreStuck) {
  constexpr int kNum = 40;
  const auto num_running = std::make_shared<std::atomic<int>>(0);
  const auto crew = std::make_shared<Crew>();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kNum; ++i) {
    workers.push_back(std::make_unique<Worker>(crew, [num_running] {
      ++*num_running;
      while (*num_running < kNum) std::this_thread::sleep_for(1ms);  // each run waits until all runs have begun
    }));
  }
  for (const auto& worker : workers) worker->request();
  for (const auto& worker : workers) EXPECT_TRUE(worker->wait_until(Worker::Clock::now() + 20s));
}

TEST(Crew, TheStuckDoNotKeepOthersWaiting) {
  const auto released = std::make_shared<std::promise<void>>();
  const auto crew = std::make_shared<Crew>();
  const auto wait = [future = released->get_future().share()] { future.wait(); };
  std::vector<std::unique_ptr<Worker>> stuck;
  for (int i = 0; i < 8; ++i) stuck.push_back(std::make_unique<Worker>(crew, wait));
  std::atomic<int> rounds = 0;
  Worker quick(crew, [&] { ++rounds; });
  for (const auto& worker : stuck) worker->request();
  for (int i = 1; i <= 3; ++i) {
    quick.request();
    ASSERT_TRUE(quick.wait_until(Worker::Clock::now() + 20s));
    EXPECT_EQ(rounds, i);
  }
  EXPECT_TRUE(stuck[7]->is_busy());
  released->set_value();
  for (const auto& worker : stuck) EXPECT_TRUE(worker->wait_until(Worker::Clock::now() + 20s));
}

TEST(Crew, ThreadsAreFewWhenWorkIsShort) {
  const auto crew = std::make_shared<Crew>();
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 64; ++i) {
    workers.push_back(std::make_unique<Worker>(crew, [&] {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }));
  }
  for (const auto& worker : workers) worker->request();
  // wait_until() would add threads if these get no processor for some milliseconds.
  for (const auto& worker : workers) {
    while (worker->is_busy()) std::this_thread::yield();
  }
  EXPECT_LE(threads.size(), 4U);
}

TEST(Worker, EndsWithoutEverBeingAsked) {
  Worker worker([] { FAIL(); });
}

}  // namespace
}  // namespace yoke::device
