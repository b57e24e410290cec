#include "yoke/device/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

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
  auto end = finished->get_future();
  {
    // Shared with the thread, as the class demands: it outlives the Worker.
    Worker worker([released, finished] {
      released->get_future().wait();
      finished->set_value();
    });
    worker.request();
    EXPECT_FALSE(worker.wait_until(Worker::Clock::now() + 10ms));
    EXPECT_TRUE(worker.is_busy());
    EXPECT_GE(worker.busy_for(), 10ms);
  }  // returns although the thread is stuck
  released->set_value();
  EXPECT_EQ(end.wait_for(10s), std::future_status::ready);
}

TEST(Worker, EndsWithoutEverBeingAsked) {
  Worker worker([] { FAIL(); });
}

}  // namespace
}  // namespace yoke::device
