#include "yoke/dist/detail/plug_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "yoke/contract/amd_driver.h"

namespace yoke::dist {
namespace {

using testing::HasSubstr;

const DriverProbe kNoNvidia{0, "no NVIDIA driver"}, kNoAmd{0, "no AMD GPU"}, kOne{1, ""}, kEight{8, ""};
const TorchBuild kCpu{"/t", false, false}, kCuda{"/t", true, false}, kHip{"/t", false, true};

TEST(PlugChoice, TheVendorOfTheGpuThatLibtorchCanUse) {
  EXPECT_EQ(choose_plug(kOne, kNoAmd, kCuda).library, "libyoke_cuda.so");
  EXPECT_EQ(choose_plug(kNoNvidia, kEight, kHip).library, "libyoke_hip.so");
  EXPECT_EQ(choose_plug(kOne, kEight, kHip).library, "libyoke_hip.so");
  EXPECT_EQ(choose_plug(kOne, kEight, kCuda).library, "libyoke_cuda.so");
}

TEST(PlugChoice, WithoutAGpuNothingIsMissing) {
  for (const auto& torch : {kCpu, kCuda, kHip}) {
    const auto choice = choose_plug(kNoNvidia, kNoAmd, torch);
    EXPECT_EQ(choice.library, "");
    EXPECT_FALSE(choice.status.missing);
    EXPECT_EQ(choice.status.reason, "no NVIDIA driver; no AMD GPU");
  }
}

TEST(PlugChoice, AGpuThatLibtorchIsNotBuiltForIsAnErrorThatSaysWhatToInstall) {
  for (const auto& torch : {kCpu, kCuda}) {
    const auto amd = choose_plug(kNoNvidia, kEight, torch);
    EXPECT_EQ(amd.library, "");
    EXPECT_TRUE(amd.status.missing);
    EXPECT_THAT(amd.status.reason, HasSubstr("it is AMD's, but the libtorch in /t is built for "));
    EXPECT_THAT(amd.status.reason, HasSubstr("install torch for ROCm"));
  }
  for (const auto& torch : {kCpu, kHip}) {
    const auto nvidia = choose_plug(kOne, kNoAmd, torch);
    EXPECT_TRUE(nvidia.status.missing);
    EXPECT_THAT(nvidia.status.reason, HasSubstr("install torch for CUDA"));
  }
}

TEST(PlugChoice, LibtorchIsFoundByItsFiles) {
  const auto torch = torch_of_this_process();
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(torch.folder) / "libtorch_cpu.so")) << torch.folder;
}

}  // namespace
}  // namespace yoke::dist
