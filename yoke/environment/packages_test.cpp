#include "yoke/environment/packages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/device/device.h"

namespace yoke::environment {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Packages, TorchFitsTheDriverAndTheDevices) {
  const struct {
    Drivers drivers;
    const char* index;
    const char* requirement;
  } cases[] = {
      {{}, "/cpu", "torch"},
      // The driver decides, as every CUDA 12 runs with every driver for CUDA 12.
      {{.cuda = Version{13, 2}}, "/cu130", "torch"},
      {{.cuda = Version{13, 0}}, "/cu130", "torch"},
      {{.cuda = Version{12, 9}}, "/cu126", "torch"},
      {{.cuda = Version{12, 0}}, "/cu126", "torch"},
      {{.cuda = Version{11, 4}}, "/cu118", "torch<2.8"},
      {{.cuda = Version{10, 2}}, "/cpu", "torch"},
      // The devices decide too.
      {{.cuda = Version{13, 0}, .lowest_capability = Version{7, 0}, .highest_capability = Version{7, 0}},
       "/cu126",
       "torch"},
      {{.cuda = Version{13, 0}, .lowest_capability = Version{7, 5}, .highest_capability = Version{12, 0}},
       "/cu130",
       "torch"},
      {{.cuda = Version{12, 8}, .lowest_capability = Version{10, 0}, .highest_capability = Version{10, 0}},
       "/cu128",
       "torch<2.12"},
      {{.cuda = Version{12, 4}, .lowest_capability = Version{10, 0}, .highest_capability = Version{10, 0}},
       "/cpu",
       "torch"},
      {{.cuda = Version{12, 4}, .lowest_capability = Version{9, 0}, .highest_capability = Version{9, 0}},
       "/cu126",
       "torch"},
      // AMD: the latest build that is not newer than the installed ROCm.
      {{.has_amd = true}, "/rocm7.14", "torch"},
      {{.has_amd = true, .rocm = Version{7, 14}}, "/rocm7.14", "torch"},
      {{.has_amd = true, .rocm = Version{7, 2}}, "/rocm7.2", "torch<2.14"},
      {{.has_amd = true, .rocm = Version{7, 0}}, "/rocm6.4", "torch<2.10"},
      {{.has_amd = true, .rocm = Version{5, 7}}, "/cpu", "torch"},
      {{.cuda = Version{12, 4}, .has_amd = true}, "/cu126", "torch"},
  };
  for (const auto& one : cases) {
    const auto packages = packages_for(Framework::kTorch, one.drivers);
    EXPECT_THAT(packages.index_url, EndsWith(one.index)) << packages.reason;
    EXPECT_THAT(packages.requirements, ElementsAre(one.requirement)) << packages.reason;
  }
}

TEST(Packages, TensorflowFitsTheDriver) {
  const struct {
    Drivers drivers;
    const char* requirement;
  } cases[] = {
      {{}, "tensorflow-cpu"},
      {{.cuda = Version{13, 0}}, "tensorflow[and-cuda]"},
      {{.cuda = Version{12, 0}}, "tensorflow[and-cuda]"},
      {{.cuda = Version{11, 8}}, "tensorflow[and-cuda]==2.14.*"},
      {{.cuda = Version{11, 4}}, "tensorflow-cpu"},
      {{.has_amd = true}, "tensorflow-cpu"},
  };
  for (const auto& one : cases) {
    const auto packages = packages_for(Framework::kTensorflow, one.drivers);
    EXPECT_THAT(packages.requirements, ElementsAre(one.requirement)) << packages.reason;
    EXPECT_THAT(packages.index_url, IsEmpty());
  }
}

TEST(Packages, DriversAreReadFromTheSnapshot) {
  device::Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true, .api_version = "12.4"}};
  EXPECT_EQ(drivers_of(snapshot, "").cuda, std::nullopt) << "a driver without a device";
  device::Device device{.vendor = device::Vendor::kNvidia};
  device.facts.compute_capability = "8.0";
  snapshot.devices.push_back(device);
  device.facts.compute_capability = "12.0";
  snapshot.devices.push_back(device);
  const auto drivers = drivers_of(snapshot, "6.4.1-83");
  EXPECT_EQ(drivers.cuda, (Version{12, 4}));
  EXPECT_EQ(drivers.lowest_capability, (Version{8, 0}));
  EXPECT_EQ(drivers.highest_capability, (Version{12, 0}));
  EXPECT_FALSE(drivers.has_amd);
  EXPECT_EQ(drivers.rocm, std::nullopt) << "ROCm without an AMD GPU";
  snapshot.devices = {device::Device{.vendor = device::Vendor::kAmd}};
  EXPECT_EQ(drivers_of(snapshot, "6.4.1-83").rocm, (Version{6, 4}));
  EXPECT_EQ(drivers_of(snapshot, "").rocm, std::nullopt);
}

TEST(Packages, VersionsOfTheRequirementsCount) {
  auto packages = packages_for(Framework::kTorch, {.cuda = Version{12, 4}});
  take_versions(packages,
                "numpy\ntorch==2.9.1  # as in the paper\ntorchvision\ntorch-geometric==2.6\n\n-r other.txt\n");
  EXPECT_THAT(packages.requirements, ElementsAre("torch==2.9.1", "torchvision"));
  auto tensorflow = packages_for(Framework::kTensorflow, {});
  take_versions(tensorflow, "torch==2.9.1\n");
  EXPECT_THAT(tensorflow.requirements, ElementsAre("tensorflow-cpu"));
}

TEST(Packages, VersionsCompareAsNumbers) {
  EXPECT_EQ(parse_version("7.14"), (Version{7, 14}));
  EXPECT_EQ(parse_version("6.4.1-83\n"), (Version{6, 4}));
  EXPECT_GT(*parse_version("7.14"), *parse_version("7.2"));
  for (const char* text : {"", "7", "7.", "x.1", ".1"}) EXPECT_EQ(parse_version(text), std::nullopt) << text;
}

TEST(Packages, AReasonIsAlwaysGiven) {
  EXPECT_THAT(packages_for(Framework::kTorch, {.cuda = Version{10, 2}}).reason, HasSubstr("CUDA 10.2"));
  EXPECT_THAT(packages_for(Framework::kTorch, {}).reason, HasSubstr("no GPU"));
}

}  // namespace
}  // namespace yoke::environment
