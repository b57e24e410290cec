#include "yoke/train/cpu_speed.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

TEST(CpuSpeed, FlushedDenormalsAreZeroInThreadsStartedLater) {
  std::thread([] {  // run on a separate thread, so that the setting does not affect other tests
    if (!flush_denormals()) GTEST_SKIP() << "this CPU cannot flush denormals";
    float tiny = 1;
    std::thread([&tiny] {
      volatile float smallest = std::numeric_limits<float>::min();
      tiny = smallest / 2;
    }).join();
    EXPECT_EQ(tiny, 0.0f);
  })
      .join();
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(CpuSpeed, WithAnOptimizerFreedMemoryComesBackWithoutPageFaults) {
#ifndef M_MMAP_THRESHOLD
  GTEST_SKIP() << "this malloc is not glibc's";
#endif
  const Sgd optimizer({{"weight", at::zeros({1})}}, {.lr = 0.1});
  constexpr size_t kBytes = 16 << 20;
  const auto use = [] {
    void* memory = std::malloc(kBytes);
    std::memset(memory, 1, kBytes);
    asm volatile("" : : "r"(memory) : "memory");
    std::free(memory);
  };
  use();
  const long before = page_faults();
  for (int i = 0; i < 10; ++i) use();
  EXPECT_LT(page_faults() - before, 1000) << "16 MiB are 4096 pages, each time";
}

}  // namespace
}  // namespace yoke::train
