#include "yoke/container/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using device::Vendor;
using testing::HasSubstr;

WantedDevice gpu(Vendor vendor, int64_t number) {
  const bool is_amd = vendor == Vendor::kAmd;
  return {.vendor = vendor,
          .id = std::to_string(number),
          .uuid = fmt::format("GPU-{}", number),
          .minor = (is_amd ? 128 : 0) + number,
          .vendor_index = number};
}

CdiDevice nvidia_cdi(const std::string& name, int64_t number) {
  return {"nvidia.com/gpu", name, {fmt::format("/dev/nvidia{}", number), "/dev/nvidiactl"}};
}

std::string granted(const DeviceGrant& grant) {
  std::vector<std::string> parts = grant.arguments;
  for (const auto& [name, value] : grant.variables) parts.push_back(name + "=" + value);
  return fmt::format("{}", fmt::join(parts, " "));
}

/// One line for each engine, version and vendor: which arguments and variables it gets for devices 0 and 2.
TEST(Devices, EachEngineAtEachVersionGetsWhatItHonours) {
  enum Extra { kPlain, kSpecification, kHook, kRuntime };
  const struct {
    EngineKind kind;
    Version version;
    bool has_docker_cdi;
    Extra extra;
    Vendor vendor;
    const char* granted;  ///< nullptr: it is refused.
  } table[] = {
      // Podman knows CDI since 4.1.0 (its release notes). --gpus does nothing before 5.0.0 for NVIDIA (release notes of
      // 5.0.0), and is translated to CDI since then; so CDI is used, and --gpus never.
      {EngineKind::kPodman,
       {4, 3, 1},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman,
       {5, 4, 2},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman,
       {6, 0, 0},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman, {4, 3, 1}, false, kPlain, Vendor::kNvidia, nullptr},
      {EngineKind::kPodman, {5, 4, 2}, false, kPlain, Vendor::kNvidia, nullptr},
      // Before CDI, NVIDIA's OCI hook reads the variable (docs.nvidia.com, container toolkit 1.9, podman).
      {EngineKind::kPodman,
       {3, 4, 4},
       false,
       kHook,
       Vendor::kNvidia,
       "NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-2 CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman, {3, 4, 4}, false, kPlain, Vendor::kNvidia, nullptr},
      // --gpus for AMD does nothing before 6.0.0 (github.com/ROCm/container-toolkit/pull/136). Nodes work in all.
      {EngineKind::kPodman,
       {4, 3, 1},
       false,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman,
       {5, 4, 2},
       false,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kPodman,
       {6, 0, 0},
       false,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      // Docker has --gpus since 19.03 (its release notes), by NVIDIA's hook; CDI since 25.0 if it is enabled
      // (github.com/moby/moby/pull/45134), and by default since 28.2.0 (release notes of 28.2.0).
      {EngineKind::kDocker,
       {20, 10, 24},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--gpus \"device=GPU-0,GPU-2\" CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {28, 1, 1},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--gpus \"device=GPU-0,GPU-2\" CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {28, 2, 2},
       true,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {28, 2, 2},
       true,
       kPlain,
       Vendor::kNvidia,
       "--gpus \"device=GPU-0,GPU-2\" CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {29, 3, 0},
       true,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      // Before 19.03 there is only the runtime (the same release notes).
      {EngineKind::kDocker,
       {18, 9, 0},
       false,
       kRuntime,
       Vendor::kNvidia,
       "--runtime nvidia NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-2 CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker, {18, 9, 0}, false, kPlain, Vendor::kNvidia, nullptr},
      // --gpus for AMD exists since 29.3.0 (AMD Container Toolkit, "Running Workloads"). Nodes work in all versions.
      {EngineKind::kDocker,
       {20, 10, 24},
       false,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {28, 2, 2},
       true,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kDocker,
       {29, 3, 0},
       true,
       kPlain,
       Vendor::kAmd,
       "--device /dev/kfd --device /dev/dri/renderD128 --device /dev/dri/renderD130 ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      // Apptainer has --device since 1.5.0 (changelog of 1.5.0); --nv and --rocm bind the nodes of all devices
      // (apptainer.org, user guide, GPU support).
      {EngineKind::kApptainer,
       {1, 3, 6},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--nv CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer,
       {1, 4, 5},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--nv CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer,
       {1, 5, 0},
       false,
       kSpecification,
       Vendor::kNvidia,
       "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2 NVIDIA_VISIBLE_DEVICES=void "
       "CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer, {1, 5, 0}, false, kPlain, Vendor::kNvidia, "--nv CUDA_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer, {1, 3, 6}, false, kPlain, Vendor::kAmd, "--rocm ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer, {1, 4, 5}, false, kPlain, Vendor::kAmd, "--rocm ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
      {EngineKind::kApptainer, {1, 5, 0}, false, kPlain, Vendor::kAmd, "--rocm ROCR_VISIBLE_DEVICES=GPU-0,GPU-2"},
  };
  for (const auto& line : table) {
    Engine engine{.kind = line.kind, .version = line.version};
    engine.has_cdi = line.has_docker_cdi;
    complete_facts(engine);
    if (line.extra == kSpecification) {
      engine.cdi.devices = {nvidia_cdi("0", 0), nvidia_cdi("1", 1), nvidia_cdi("2", 2)};
    }
    engine.has_nvidia_hook = line.extra == kHook;
    engine.has_nvidia_runtime = line.extra == kRuntime;
    const auto where = fmt::format("{} {}", name(line.kind), line.version.text());
    const std::vector devices = {gpu(line.vendor, 0), gpu(line.vendor, 2)};
    if (line.granted == nullptr) {
      EXPECT_THROW(grant_devices(engine, devices), Error) << where;
    } else {
      EXPECT_EQ(granted(grant_devices(engine, devices)), line.granted) << where;
    }
    const auto none = grant_devices(engine, {});
    EXPECT_EQ(granted(none), "NVIDIA_VISIBLE_DEVICES=void CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES=") << where;
  }
}

TEST(Devices, AGpuIsFoundInASpecificationByItsNode) {
  Engine engine{.kind = EngineKind::kPodman, .version = {5, 0, 0}, .has_cdi = true};
  const auto one = [&] { return grant_devices(engine, {gpu(Vendor::kNvidia, 2)}).arguments; };
  engine.cdi.devices = {
      {"nvidia.com/gpu", "all", {"/dev/nvidia1", "/dev/nvidia2"}}, nvidia_cdi("first", 1), nvidia_cdi("second", 2)};
  EXPECT_EQ(one(), (std::vector<std::string>{"--device", "nvidia.com/gpu=second"}));
  engine.cdi.devices.push_back(nvidia_cdi("GPU-2", 2));
  EXPECT_EQ(one(), (std::vector<std::string>{"--device", "nvidia.com/gpu=GPU-2"}));
  engine.cdi.devices = {{"nvidia.com/gpu", "all", {"/dev/nvidia1", "/dev/nvidia2"}}};
  EXPECT_THROW(one(), Error) << "all is too much";
  engine.cdi.devices = {nvidia_cdi("2", 1)};
  EXPECT_THROW(one(), Error) << "the name 2 belongs to another node";
  auto instance = gpu(Vendor::kNvidia, 2);
  instance.id = "2:1";
  instance.uuid = "MIG-7";
  instance.is_instance = true;
  engine.cdi.devices = {nvidia_cdi("2", 2), nvidia_cdi("2:0", 2), nvidia_cdi("2:1", 2)};
  EXPECT_EQ(grant_devices(engine, {instance}).arguments, (std::vector<std::string>{"--device", "nvidia.com/gpu=2:1"}));
}

TEST(Devices, AMDsGpusWithoutUuidsAreNumberedAsTheContainerSeesThem) {
  auto first = gpu(Vendor::kAmd, 1), second = gpu(Vendor::kAmd, 3);
  first.uuid = second.uuid = "";
  const auto variables = [&](EngineKind kind) {
    return grant_devices(Engine{.kind = kind, .version = {5, 0, 0}}, {first, second}).variables;
  };
  EXPECT_EQ(variables(EngineKind::kPodman), (Variables{{"ROCR_VISIBLE_DEVICES", "0,1"}}));
  EXPECT_EQ(variables(EngineKind::kApptainer), (Variables{{"ROCR_VISIBLE_DEVICES", "1,3"}}));
}

/// All partitions of an MI300 can have one UUID, by which ROCr would find only the first.
TEST(Devices, AUuidThatSeveralDevicesHaveIsNotUsed) {
  device::Snapshot snapshot;
  for (const int64_t i : {0, 1, 2, 3}) {
    device::Device device{.index = i, .vendor = Vendor::kAmd};
    device.facts.uuid = i < 3 ? "GPU-same" : "GPU-other";
    device.facts.vendor_index = i;
    device.facts.minor_number = 128 + i;
    snapshot.devices.push_back(device);
  }
  const auto variables = [&](EngineKind kind, const std::vector<std::string>& ids) {
    return grant_devices(Engine{.kind = kind, .version = {5, 0, 0}}, wanted_devices(snapshot, ids)).variables;
  };
  EXPECT_EQ(variables(EngineKind::kPodman, {"1", "2"}), (Variables{{"ROCR_VISIBLE_DEVICES", "0,1"}}));
  EXPECT_EQ(variables(EngineKind::kApptainer, {"1", "2"}), (Variables{{"ROCR_VISIBLE_DEVICES", "1,2"}}));
  EXPECT_EQ(variables(EngineKind::kPodman, {"3"}), (Variables{{"ROCR_VISIBLE_DEVICES", "GPU-other"}}));
}

/// NVML's indices of MIG devices can have holes, and specifications name the devices by them.
TEST(Devices, AMigInstanceIsNamedByItsIndexInTheDriver) {
  device::Snapshot snapshot;
  device::Device device{.vendor = Vendor::kNvidia};
  device.facts.minor_number = 0;
  for (const int64_t index : {1, 2}) {
    auto& instance = device.instances.emplace_back(device::Device{.index = index, .vendor = Vendor::kNvidia});
    instance.facts.uuid = fmt::format("MIG-{}", index);
  }
  snapshot.devices = {device};
  Engine engine{.kind = EngineKind::kPodman, .version = {5, 0, 0}, .has_cdi = true};
  engine.cdi.devices = {nvidia_cdi("0:1", 0), nvidia_cdi("0:2", 0)};
  EXPECT_EQ(granted(grant_devices(engine, wanted_devices(snapshot, {"0:1"}))),
            "--device nvidia.com/gpu=0:1 NVIDIA_VISIBLE_DEVICES=void CUDA_VISIBLE_DEVICES=MIG-1");
}

TEST(Devices, DevicesOfTwoVendorsAreRefused) {
  const Engine engine{.kind = EngineKind::kDocker, .version = {29, 0, 0}};
  EXPECT_THROW(grant_devices(engine, {gpu(Vendor::kNvidia, 0), gpu(Vendor::kAmd, 0)}), Error);
  auto unknown = gpu(Vendor::kNvidia, 0);
  unknown.minor.reset();
  EXPECT_THROW(grant_devices(engine, {unknown}), Error) << "its node is not known";
}

TEST(Devices, WhatAContainerShowsIsCompared) {
  const Expectation two{.nodes = {"/dev/nvidia0", "/dev/nvidia2"}, .variables = {{"A", "1"}}, .mechanism = "M"};
  const Expectation none{.variables = {{"A", ""}}, .mechanism = "M"};
  auto loose = two;
  loose.is_exact = false;
  const std::string both = "node /dev/nvidia0\nnode /dev/nvidia2\nnode /dev/nvidiactl\nvariable A=1\nend\n";
  const struct {
    const Expectation& expectation;
    std::string report;
    const char* why;  ///< A part of the sentence; empty: nothing is wrong.
  } cases[] = {
      {two, both, ""},
      {two, "variable A=1\n",
       "M did not take effect: in the container, /dev/nvidia0 is missing; /dev/nvidia2 is missing"},
      {two, both + "node /dev/nvidia1\n", "/dev/nvidia1 is there, but was not asked for"},
      {loose, both + "node /dev/nvidia1\n", ""},
      {two, "node /dev/nvidia0\nnode /dev/nvidia2 Operation not permitted\nvariable A=1\n",
       "/dev/nvidia2 does not open (Operation not permitted)"},
      {two, "node /dev/nvidia0\nnode /dev/nvidia2\nvariable A=2\n", "A is not \"1\""},
      {two, "node /dev/nvidia0\nnode /dev/nvidia2\n", "A is not \"1\""},
      {none, "variable A=\n", ""},
      {none, "node /dev/nvidiactl\nvariable A=\n", ""},
      {none, "node /dev/nvidia3\nvariable A=\n", "/dev/nvidia3 is there"},
      {none, "node /dev/dri/renderD128\nvariable A=\n", "/dev/dri/renderD128 is there"},
      {none, "node /dev/kfd\nvariable A=\n", "/dev/kfd is there"},
  };
  for (const auto& one : cases) {
    const auto found = contradiction(one.expectation, parse_sight(one.report));
    EXPECT_EQ(found.has_value(), *one.why != '\0') << one.report;
    EXPECT_THAT(found.value_or(""), HasSubstr(one.why));
  }
}

}  // namespace
}  // namespace yoke::container
