#include "yoke/environment/packages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/device/device.h"

namespace yoke::environment {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// The index and the requirements, or the message of the error.
std::string choice(Framework framework, const Drivers& drivers, const std::optional<std::vector<int>>& minors = {}) {
  try {
    const auto packages = packages_for(framework, drivers, minors);
    std::string text(base_name(packages.index_url));
    for (const auto& requirement : packages.requirements) text += " " + requirement.text();
    return text;
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

// Each row is a machine. Where two GPUs differ, a build that has code for only one of them is wrong.
TEST(Packages, TorchFitsTheDriverAndAllDevices) {
  const Drivers::Gpu k40 = {"gpu 0 (K40)", {3, 5}}, k80 = {"gpu 0 (K80)", {3, 7}},
                     gtx1080 = {"gpu 0 (GTX 1080)", {6, 1}}, v100 = {"gpu 0 (V100)", {7, 0}},
                     a100 = {"gpu 0 (A100)", {8, 0}}, rtx4090 = {"gpu 0 (4090)", {8, 9}},
                     h100 = {"gpu 1 (H100)", {9, 0}}, b200 = {"gpu 1 (B200)", {10, 0}},
                     b300 = {"gpu 1 (B300)", {10, 3}}, rtx5090 = {"gpu 1 (5090)", {12, 0}};
  const struct {
    const char* machine;
    Drivers drivers;
    const char* choice;
  } rows[] = {
      {"no GPU", {}, "cpu torch"},
      {"driver that tells no capability", {.cuda = Version{12, 9}}, "cu126 torch>=2.6,<2.15"},
      {"4090, 12.4", {.cuda = Version{12, 4}, .gpus = {rtx4090, rtx4090}}, "cu126 torch>=2.6,<2.15"},
      {"H100, 12.0", {.cuda = Version{12, 0}, .gpus = {h100}}, "cu126 torch>=2.6,<2.15"},
      {"H100, 13.2", {.cuda = Version{13, 2}, .gpus = {h100}}, "cu130 torch>=2.9"},
      {"4090 and 5090, 12.8", {.cuda = Version{12, 8}, .gpus = {rtx4090, rtx5090}}, "cu128 torch>=2.7,<2.12"},
      {"A100 and B200, 12.9", {.cuda = Version{12, 9}, .gpus = {a100, b200}}, "cu128 torch>=2.7,<2.12"},
      {"A100 and B300, 13.0", {.cuda = Version{13, 0}, .gpus = {a100, b300}}, "cu130 torch>=2.9"},
      {"V100, 13.0", {.cuda = Version{13, 0}, .gpus = {v100}}, "cu126 torch>=2.6,<2.15"},
      {"V100 and B200, 13.0", {.cuda = Version{13, 0}, .gpus = {v100, b200}}, "cu128 torch>=2.8,<2.11"},
      {"GTX 1080 and H100, 12.4", {.cuda = Version{12, 4}, .gpus = {gtx1080, h100}}, "cu126 torch>=2.6,<2.15"},
      {"A100, 11.0", {.cuda = Version{11, 0}, .gpus = {a100}}, "cu118 torch>=2.0,<2.8"},
      {"K80, 11.4", {.cuda = Version{11, 4}, .gpus = {k80}}, "cu118 torch>=2.0,<2.8"},
      // AMD: the latest build that is not newer than the installed ROCm.
      {"ROCm not known", {.has_amd = true}, "rocm7.14 torch>=2.14"},
      {"ROCm 7.14", {.has_amd = true, .rocm = Version{7, 14}}, "rocm7.14 torch>=2.14"},
      {"ROCm 7.2", {.has_amd = true, .rocm = Version{7, 2}}, "rocm7.2 torch>=2.11,<2.14"},
      {"ROCm 7.0", {.has_amd = true, .rocm = Version{7, 0}}, "rocm6.4 torch>=2.8,<2.10"},
      {"both vendors", {.cuda = Version{12, 4}, .has_amd = true}, "cu126 torch>=2.6,<2.15"},
  };
  for (const auto& row : rows) EXPECT_EQ(choice(Framework::kTorch, row.drivers), row.choice) << row.machine;

  // A machine with GPUs never gets the build for the CPU unasked.
  const struct {
    Drivers drivers;
    std::vector<const char*> words;
  } refused[] = {
      {{.cuda = Version{13, 0}, .gpus = {gtx1080, rtx5090}},
       {"gpu 0 (GTX 1080) (6.1) has cu126", "gpu 1 (5090) (12.0) has cu130", "CUDA_VISIBLE_DEVICES"}},
      {{.cuda = Version{12, 4}, .gpus = {b200}}, {"driver for CUDA 12.4", "install a driver for CUDA 12.8 or later"}},
      {{.cuda = Version{10, 2}}, {"driver for CUDA 10.2", "install a driver for CUDA 11.0 or later"}},
      {{.cuda = Version{11, 4}, .gpus = {k40}}, {"gpu 0 (K40) (compute capability 3.5)"}},
      {{.has_amd = true, .rocm = Version{5, 5}}, {"ROCm 5.5 is older"}},
  };
  for (const auto& row : refused) {
    const auto text = choice(Framework::kTorch, row.drivers);
    EXPECT_THAT(text, StartsWith("error: "));
    for (const char* word : row.words) EXPECT_THAT(text, HasSubstr(word));
  }
  EXPECT_THAT(choice(Framework::kTorch, {.cuda = Version{13, 0}, .gpus = {gtx1080, rtx5090}}),
              Not(HasSubstr("driver for")))
      << "no driver would help";
}

TEST(Packages, VersionsOfTheFilesNarrowTheChoice) {
  const Drivers a100 = {.cuda = Version{13, 0}, .gpus = {{"gpu 0", {8, 0}}}};
  const Drivers mixed = {.cuda = Version{13, 0}, .gpus = {{"gpu 0", {7, 0}}, {"gpu 1", {10, 0}}}};
  EXPECT_EQ(choice(Framework::kTorch, a100, {{14}}), "cu130 torch>=2.9");
  EXPECT_EQ(choice(Framework::kTorch, a100, {{7, 8}}), "cu126 torch>=2.6,<2.15");
  EXPECT_EQ(choice(Framework::kTorch, a100, {{4}}), "cu124 torch>=2.4,<2.7");
  EXPECT_EQ(choice(Framework::kTorch, a100, {{3}}), "cu121 torch>=2.1,<2.6");
  EXPECT_EQ(choice(Framework::kTorch, a100, {{0}}), "cu118 torch>=2.0,<2.8");
  EXPECT_THAT(choice(Framework::kTorch, a100, std::vector<int>{}), StartsWith("error: the requirements ask for"));
  EXPECT_THAT(choice(Framework::kTorch, mixed, {{12}}), StartsWith("error: the requirements ask for"));
  EXPECT_EQ(choice(Framework::kTorch, {.has_amd = true, .rocm = Version{7, 2}}, {{9}}), "rocm6.4 torch>=2.8,<2.10");
}

TEST(Packages, TensorflowFitsTheDriver) {
  const struct {
    Drivers drivers;
    const char* choice;
  } rows[] = {
      {{}, " tensorflow-cpu"},
      {{.cuda = Version{13, 0}}, " tensorflow[and-cuda]"},
      {{.cuda = Version{12, 0}}, " tensorflow[and-cuda]"},
      {{.cuda = Version{11, 8}}, " tensorflow[and-cuda]==2.14.*"},
  };
  for (const auto& row : rows) EXPECT_EQ(choice(Framework::kTensorflow, row.drivers), row.choice);
  EXPECT_THAT(choice(Framework::kTensorflow, {.cuda = Version{11, 4}}), StartsWith("error: TensorFlow needs a driver"));
  EXPECT_THAT(choice(Framework::kTensorflow, {.has_amd = true}), StartsWith("error: AMD publishes TensorFlow"));
}

TEST(Packages, DriversAreReadFromTheSnapshot) {
  device::Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true, .api_version = "12.4"}};
  EXPECT_EQ(drivers_of(snapshot, "").cuda, std::nullopt) << "a driver without a device";
  device::Device device{.vendor = device::Vendor::kNvidia};
  device.facts.compute_capability = "8.0";
  snapshot.devices.push_back(device);
  device.index = 1;
  device.facts.name = "RTX 5090";
  device.facts.compute_capability = "12.0";
  snapshot.devices.push_back(device);
  const auto drivers = drivers_of(snapshot, "6.4.1-83");
  EXPECT_EQ(drivers.cuda, (Version{12, 4}));
  ASSERT_EQ(drivers.gpus.size(), 2U);
  EXPECT_EQ(drivers.gpus[0].capability, (Version{8, 0}));
  EXPECT_EQ(drivers.gpus[1].name, "gpu 1 (RTX 5090)");
  EXPECT_FALSE(drivers.has_amd);
  EXPECT_EQ(drivers.rocm, std::nullopt) << "ROCm without an AMD GPU";
  snapshot.devices = {device::Device{.vendor = device::Vendor::kAmd}};
  EXPECT_EQ(drivers_of(snapshot, "6.4.1-83").rocm, (Version{6, 4}));
  EXPECT_EQ(drivers_of(snapshot, "").rocm, std::nullopt);
}

TEST(Packages, ADriverThatFailsIsNoMachineWithoutGpus) {
  const auto problem = [](const device::Snapshot& snapshot) -> std::string {
    try {
      drivers_of(snapshot, "");
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  device::Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .has_answered = false, .reason = "NVIDIA: mismatch", .is_broken = true}};
  EXPECT_THAT(problem(snapshot), HasSubstr("NVIDIA: mismatch"));
  snapshot.backends = {{.backend = "nvml", .has_answered = false}};
  EXPECT_THAT(problem(snapshot), HasSubstr("the driver (nvml) does not answer"));
  snapshot.backends = {{.backend = "nvml", .reason = "libnvidia-ml.so.1 is not installed"}};
  EXPECT_EQ(problem(snapshot), "") << "no driver";
  snapshot.backends = {{.backend = "nvml", .is_available = true, .api_version = "12.4"}};
  device::Device device{.vendor = device::Vendor::kNvidia, .state = device::State::kNoPermission, .reason = "a cgroup"};
  snapshot.devices = {device};
  EXPECT_THAT(problem(snapshot), HasSubstr("gpu 0: no permission, a cgroup"));
  device.index = 1;
  device.state = device::State::kFree;
  device.facts.compute_capability = "8.0";
  snapshot.devices.push_back(device);
  EXPECT_EQ(problem(snapshot), "") << "one GPU of two may be used";
  snapshot.backends[0].api_version = "";
  EXPECT_THAT(problem(snapshot), HasSubstr("does not say which CUDA"));
}

TEST(Packages, VersionsOfTheFilesAreAdded) {
  const auto texts = [](Packages packages, std::vector<Named> named) {
    PipFacts facts;
    facts.named = std::move(named);
    add_versions(packages, facts);
    std::vector<std::string> result;
    for (const auto& requirement : packages.requirements) result.push_back(requirement.text());
    return result;
  };
  const auto torch = packages_for(Framework::kTorch, {.cuda = Version{11, 0}});
  EXPECT_THAT(texts(torch, {{.package = "torch"}}), ElementsAre("torch>=2.0,<2.8")) << "a plain torch";
  EXPECT_THAT(texts(torch, {{.package = "torch", .specifier = "==2.3.1"}, {.package = "torchvision"}}),
              ElementsAre("torch>=2.0,<2.8,==2.3.1", "torchvision"));
  EXPECT_THAT(texts(torch, {{.package = "torchvision", .specifier = "==0.18.1", .is_constraint = true},
                            {.package = "torch-geometric", .specifier = "==2.6"}}),
              ElementsAre("torch>=2.0,<2.8"))
      << "a constraint does not ask for a package";
  EXPECT_THAT(texts(torch, {{.package = "torch", .specifier = "==2.3.1", .is_constraint = true}}),
              ElementsAre("torch>=2.0,<2.8,==2.3.1"));
  EXPECT_THAT(texts(packages_for(Framework::kTensorflow, {.cuda = Version{12, 4}}),
                    {{.package = "tensorflow", .specifier = "==2.16.1"}, {.package = "torch", .specifier = "==2.9.1"}}),
              ElementsAre("tensorflow[and-cuda]==2.16.1"));
}

TEST(Packages, AnotherBuildIsAnErrorWithBothNames) {
  const auto problem = [](const Packages& packages, const std::map<std::string, std::string>& versions) -> std::string {
    try {
      check_build(packages, versions, "/env");
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto torch = packages_for(Framework::kTorch, {.cuda = Version{12, 4}});
  EXPECT_EQ(problem(torch, {{"torch", "2.14.0+cu126"}}), "");
  EXPECT_THAT(problem(torch, {{"torch", "2.14.1+cpu"}}), AllOf(HasSubstr("torch 2.14.1+cpu"), HasSubstr("+cu126")));
  EXPECT_THAT(problem(torch, {{"torch", "2.14.1"}}), HasSubstr("+cu126")) << "the build of PyPI";
  EXPECT_THAT(problem(torch, {}), HasSubstr("/env has no torch"));
  EXPECT_EQ(problem(packages_for(Framework::kTorch, {}), {{"torch", "2.14.0"}}), "") << "arm64 has no +cpu";
  EXPECT_EQ(problem(torch_from("https://mirror/simple"), {{"torch", "2.14.0"}}), "");
  EXPECT_THAT(problem(torch_from("https://mirror/whl/cu128/"), {{"torch", "2.11.0+cpu"}}), HasSubstr("+cu128"));
}

TEST(Packages, VersionsCompareAsNumbers) {
  EXPECT_EQ(parse_version("7.14"), (Version{7, 14}));
  EXPECT_EQ(parse_version("6.4.1-83\n"), (Version{6, 4}));
  EXPECT_GT(*parse_version("7.14"), *parse_version("7.2"));
  for (const char* text : {"", "7", "7.", "x.1", ".1"}) EXPECT_EQ(parse_version(text), std::nullopt) << text;
}

TEST(Packages, AReasonIsAlwaysGiven) {
  EXPECT_THAT(packages_for(Framework::kTorch, {.cuda = Version{12, 2}}).reason, HasSubstr("CUDA 12.2"));
  EXPECT_THAT(packages_for(Framework::kTorch, {}).reason, HasSubstr("no GPU"));
}

}  // namespace
}  // namespace yoke::environment
