#include "yoke/device/gpu_count.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace yoke::device {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Loads fakes/cuda instead of the driver, because dlopen finds a loaded library by name before it searches folders.
class GpuCountTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(dlopen(YOKE_FAKE_LIBCUDA, RTLD_NOW), nullptr) << dlerror();
    for (const char* name : {"YOKE_FAKE_GPUS", "YOKE_FAKE_GPU_HANG", "CUDA_VISIBLE_DEVICES"}) unsetenv(name);
  }
};

TEST_F(GpuCountTest, CountsWhatAProgramWouldSee) {
  setenv("YOKE_FAKE_GPUS", "4", 1);
  EXPECT_EQ(count_gpus().num_gpus, 4);
  EXPECT_THAT(count_gpus().reason, IsEmpty());
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  EXPECT_EQ(count_gpus().num_gpus, 2);
  setenv("CUDA_VISIBLE_DEVICES", "0,9,1", 1);
  EXPECT_EQ(count_gpus().num_gpus, 1) << "devices after one that is not there are not visible";
}

TEST_F(GpuCountTest, SaysWhyThereIsNone) {
  const auto count = count_gpus();
  EXPECT_EQ(count.num_gpus, 0);
  EXPECT_THAT(count.reason, HasSubstr("the NVIDIA driver shows no device to this process"));
}

TEST_F(GpuCountTest, ADriverThatHangsIsNotWaitedFor) {
  setenv("YOKE_FAKE_GPU_HANG", "1", 1);
  const auto count = count_gpus(std::chrono::milliseconds(50));
  EXPECT_EQ(count.num_gpus, 0);
  EXPECT_THAT(count.reason, HasSubstr("the GPU driver did not answer within 0.05 s"));
}

}  // namespace
}  // namespace yoke::device
