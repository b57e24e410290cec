#include "yoke/contract/amd_driver.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

const std::filesystem::path kMachines = YOKE_FAKE_MACHINES;

TEST(AmdDriver, CountsTheGpusOfANode) {
  const auto lumi = probe_amd_driver({}, kMachines / "lumi-g");
  EXPECT_EQ(lumi.num_devices, 8);
  EXPECT_EQ(lumi.reason, "");
  EXPECT_EQ(probe_amd_driver({}, kMachines / "mi300a").num_devices, 4);
}

TEST(AmdDriver, ProcessorsAndGpusOfOthersAreNone) {
  for (const auto* machine : {"quartz", "dgx-a100", "there-is-no-such-machine"}) {
    const auto probe = probe_amd_driver({}, kMachines / machine);
    EXPECT_EQ(probe.num_devices, 0) << machine;
    EXPECT_EQ(probe.reason, "no AMD GPU (KFD lists none)") << machine;
  }
}

// As docs/visible.md says, an empty HIP_VISIBLE_DEVICES hides nothing.
TEST(AmdDriver, VariablesMayHideAll) {
  const auto count = [](const Environment& environment) {
    return probe_amd_driver(environment, kMachines / "lumi-g").num_devices;
  };
  EXPECT_EQ(count({{"ROCR_VISIBLE_DEVICES", ""}}), 0);
  EXPECT_EQ(count({{"ROCR_VISIBLE_DEVICES", "-1"}}), 0);
  EXPECT_EQ(count({{"HIP_VISIBLE_DEVICES", "-1"}}), 0);
  EXPECT_EQ(count({{"HIP_VISIBLE_DEVICES", ""}}), 8);
  EXPECT_EQ(count({{"ROCR_VISIBLE_DEVICES", "0,1"}}), 8) << "which of them is ROCm's to say";
  EXPECT_EQ(probe_amd_driver({{"ROCR_VISIBLE_DEVICES", ""}}, kMachines / "lumi-g").reason,
            "ROCR_VISIBLE_DEVICES hides every AMD GPU");
}

TEST(AmdDriver, AContainerThatWasGivenNoneHasNone) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "yoke-amd-without-kfd";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::create_directory_symlink(kMachines / "lumi-g/sys", folder / "sys");
  EXPECT_EQ(probe_amd_driver({}, folder).num_devices, 0);
  EXPECT_EQ(probe_amd_driver({}, folder).reason, "KFD lists 8 AMD GPUs, but /dev/kfd does not exist here");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace yoke
