#include "yoke/device/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGibibyte = int64_t{1} << 30;

/// A healthy machine with two healthy GPUs.
Observations healthy() {
  Observations all;
  all.snapshot.backends = {
      {.backend = "nvml", .is_available = true, .driver_version = "580.65.06", .api_version = "13.0"}};
  for (const int64_t i : {0, 1}) {
    Device gpu{.index = i, .vendor = Vendor::kNvidia};
    gpu.has_process_list = true;
    gpu.state = State::kBusy;
    gpu.facts.name = "NVIDIA A100-SXM4-80GB";
    gpu.facts.uuid = "GPU-0000000" + std::to_string(i);
    gpu.facts.pci_bus_id = i == 0 ? "0000:3b:00.0" : "0000:af:00.0";
    gpu.facts.power_limit_default_mw = 400'000;
    gpu.facts.pcie_generation_max = 4;
    gpu.facts.pcie_width_max = 16;
    gpu.readings.memory_used_bytes = 0;
    gpu.readings.persistence_mode = true;
    gpu.readings.throttle_reasons.emplace();
    gpu.readings.power_limit_mw = 400'000;
    gpu.readings.ecc_uncorrected_volatile = gpu.readings.ecc_uncorrected_aggregate = 0;
    gpu.readings.retirement_pending = false;
    gpu.readings.pcie_generation = 4;
    gpu.readings.pcie_width = 16;
    gpu.readings.utilization_percent = 100;
    gpu.readings.mig_enabled = false;
    all.snapshot.devices.push_back(gpu);
  }
  Device cpu{.index = 2, .vendor = Vendor::kCpu};
  cpu.facts.num_cpus = cpu.facts.num_allowed_cpus = 64;
  all.snapshot.devices.push_back(cpu);

  System system;
  system.pci_gpus = {{"0000:3b:00.0", Vendor::kNvidia, "nvidia", "identity"},
                     {"0000:af:00.0", Vendor::kNvidia, "nvidia", "identity"}};
  system.nvidia_module_version = "580.65.06";
  system.nvml = {"/lib/libnvidia-ml.so.1", "580.65.06"};
  system.cuda = {"/lib/libcuda.so.1", "580.65.06"};
  system.nccl = {"/lib/libnccl.so.2", "2.27.3"};
  for (const auto* path : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"})
    system.nodes.push_back({path, true, ""});
  system.shared_memory_bytes = system.shared_memory_free_bytes = 64 * kGibibyte;
  system.max_locked_bytes = -1;
  system.max_open_files = 1024;
  system.hard_max_open_files = 1 << 20;
  all.system = system;
  all.runtime = GpuCount{2, ""};
  all.torches = {{.path = "/torch",
                  .from = "the active Python",
                  .version = "2.11.0+cu130",
                  .cuda_version = "13.0",
                  .has_cuda = true}};
  all.kernel_log = KernelLog{.uptime = std::chrono::hours(1)};
  return all;
}

/// Returns findings such as "fail ecc 0,1", except those with status ok.
std::vector<std::string> wrong(const Observations& observations) {
  std::vector<std::string> lines;
  for (const auto& finding : findings(observations)) {
    EXPECT_EQ(finding.advice.empty(), finding.status == Status::kOk) << finding.id << ": " << finding.found;
    EXPECT_FALSE(finding.found.empty()) << finding.id;
    if (finding.status == Status::kOk) continue;
    auto line = std::string(name(finding.status)) + " " + finding.id;
    for (size_t i = 0; i < finding.devices.size(); ++i) line += (i == 0 ? " " : ",") + finding.devices[i];
    lines.push_back(line);
  }
  return lines;
}

TEST(Doctor, AMachineInOrderHasNothingWrong) {
  EXPECT_THAT(wrong(healthy()), IsEmpty());
  EXPECT_GT(findings(healthy()).size(), 10U) << "and it says what was looked at";
}

struct DoctorCase {
  const char* name;
  std::function<void(Observations&)> change;
  std::vector<std::string> wrong;
};

class DoctorTable : public testing::TestWithParam<DoctorCase> {};

TEST_P(DoctorTable, Finds) {
  auto observations = healthy();
  GetParam().change(observations);
  EXPECT_EQ(wrong(observations), GetParam().wrong);
  std::ifstream file(YOKE_DOCS "/doctor.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& finding : findings(observations)) EXPECT_THAT(page, HasSubstr("`" + finding.id + "`"));
}

Device& gpu(Observations& all, size_t i) { return all.snapshot.devices[i]; }

void no_gpu(Observations& all) {
  all.snapshot.devices.erase(all.snapshot.devices.begin(), all.snapshot.devices.begin() + 2);
  all.snapshot.backends = {{.backend = "nvml", .reason = "libnvidia-ml.so.1 is not installed"}};
  all.system->pci_gpus.clear();
  all.system->nodes.clear();
  all.system->nvidia_module_version.clear();
  all.system->nvml = all.system->cuda = {};
  all.runtime = GpuCount{0, "no NVIDIA driver"};
  all.torches = {{.path = "/torch", .from = "here", .version = "2.11.0+cpu"}};
}

const DoctorCase kDoctorCases[] = {
    {"NoGpuAtAll", no_gpu, {}},
    {"ProcessorsAlone",
     [](auto& all) {
       all.vendor = Vendor::kCpu;
       all.snapshot.devices.erase(all.snapshot.devices.begin(), all.snapshot.devices.begin() + 2);
       all.snapshot.backends.clear();
     },
     {"skip gpus"}},
    {"TheOtherVendorAlone",
     [](auto& all) {
       all.vendor = Vendor::kAmd;
       all.snapshot.devices.erase(all.snapshot.devices.begin(), all.snapshot.devices.begin() + 2);
       all.snapshot.backends.clear();
     },
     {}},
    {"ADriverLibraryWithoutAGpu",
     [](auto& all) {
       no_gpu(all);
       all.system->nvml = {"/lib/libnvidia-ml.so.1", "580.65.06"};
     },
     {"warn nvidia-driver"}},
    {"NoDriverForTheGpu",
     [](auto& all) {
       no_gpu(all);
       all.system->pci_gpus = {{"0000:3b:00.0", Vendor::kNvidia, "nouveau", ""}};
     },
     {"fail gpu-driver", "fail nvidia-driver", "fail libcuda", "warn torch"}},
    {"DriverUpdatedUnderIt",
     [](auto& all) {
       all.snapshot.devices.erase(all.snapshot.devices.begin(), all.snapshot.devices.begin() + 2);
       all.snapshot.backends = {{.backend = "nvml", .reason = "driver and library do not match"}};
       all.system->nvml.version = all.system->cuda.version = "580.95.05";
       all.runtime = GpuCount{0, "cuInit failed with CUDA error 803"};
     },
     {"fail nvidia-driver", "fail driver-versions"}},
    {"LibrariesOfTwoDrivers", [](auto& all) { all.system->cuda.version = "575.51.03"; }, {"fail driver-versions"}},
    {"VersionsThatAreNotKnown",
     [](auto& all) {
       all.system->nvidia_module_version.clear();
       all.system->nvml.version.clear();
     },
     {}},
    {"NoLibcuda",
     [](auto& all) {
       all.system->cuda = {};
       all.runtime = GpuCount{0, "libcuda.so.1 does not load"};
     },
     {"fail libcuda", "fail runtime"}},
    {"AGpuThatTheDriverDoesNotShow",
     [](auto& all) {
       all.system->pci_gpus.push_back({"0000:d8:00.0", Vendor::kNvidia, "nvidia", ""});
     },
     {"warn gpus-not-shown"}},
    {"TheSameInAContainer",
     [](auto& all) {
       all.system->pci_gpus.push_back({"0000:d8:00.0", Vendor::kNvidia, "nvidia", ""});
       all.system->is_contained = true;
     },
     {}},
    {"AGpuOfAVirtualMachine",
     [](auto& all) {
       all.system->pci_gpus.push_back({"0000:d8:00.0", Vendor::kNvidia, "vfio-pci", ""});
     },
     {"warn gpu-driver"}},
    {"NotInTheGroup",
     [](auto& all) {
       all.system->nodes[0] = {"/dev/nvidia0", false, "root:video, mode 660"};
     },
     {"fail permissions"}},
    {"RenderNodesAreNotNvidiasBusiness",
     [](auto& all) {
       all.system->nodes.push_back({"/dev/dri/renderD128", false, "root:render, mode 660"});
     },
     {}},
    {"NoUvm", [](auto& all) { all.system->nodes.pop_back(); }, {"warn nvidia-uvm"}},
    {"CudaSeesNothing",
     [](auto& all) {
       all.runtime = GpuCount{0, "cuInit failed with CUDA error 999"};
     },
     {"fail runtime"}},
    {"CudaSeesOneOfTwo",
     [](auto& all) {
       all.runtime = GpuCount{1, ""};
     },
     {"warn runtime"}},
    {"AVariableHidesAll",
     [](auto& all) {
       all.environment.set("CUDA_VISIBLE_DEVICES", "-1");
       all.runtime = GpuCount{0, "no device"};
     },
     {"warn runtime"}},
    {"AVariableHidesOne",
     [](auto& all) {
       all.environment.set("CUDA_VISIBLE_DEVICES", "GPU-00000001");
       all.runtime = GpuCount{1, ""};
     },
     {}},
    {"TorchForANewerCuda", [](auto& all) { all.snapshot.backends[0].api_version = "12.4"; }, {"fail torch"}},
    {"TorchForAnOlderCuda", [](auto& all) { (*all.torches)[0].cuda_version = "12.8"; }, {}},
    {"TorchForALaterMinorVersion",
     [](auto& all) {
       all.snapshot.backends[0].api_version = "12.4";
       (*all.torches)[0].cuda_version = "12.8";
     },
     {}},
    {"TorchForTheCpu", [](auto& all) { (*all.torches)[0].has_cuda = false; }, {"warn torch"}},
    {"NoTorch", [](auto& all) { all.torches->clear(); }, {"skip torch"}},
    {"TorchOnADeadFileSystem", [](auto& all) { all.torches.reset(); }, {"skip torch"}},
    {"NoNccl", [](auto& all) { all.system->nccl = {}; }, {"warn nccl"}},
    {"NcclOfTorch",
     [](auto& all) {
       all.system->nccl = {};
       (*all.torches)[0].nccl_path = "/nvidia/nccl/lib/libnccl.so.2";
     },
     {}},
    {"LostAndHung",
     [](auto& all) {
       gpu(all, 0).state = State::kLost;
       gpu(all, 1).state = State::kNoAnswer;
     },
     {"fail state 0", "fail state 1"}},
    {"BothLostIsOneLine", [](auto& all) { gpu(all, 0).state = gpu(all, 1).state = State::kLost; }, {"fail state 0,1"}},
    {"WhoUsesItIsUnknown", [](auto& all) { gpu(all, 0).state = State::kUnknown; }, {"warn process-list 0"}},
    {"Prohibited",
     [](auto& all) {
       gpu(all, 0).readings.compute_mode = "prohibited";
       set_state_by_use(gpu(all, 0), {});
     },
     {"fail compute-mode 0"}},
    {"UseWithoutProcess", [](auto& all) { gpu(all, 1).state = State::kFree; }, {"warn use-without-process 1"}},
    {"PersistenceMode",
     [](auto& all) { gpu(all, 0).readings.persistence_mode = gpu(all, 1).readings.persistence_mode = false; },
     {"warn persistence-mode 0,1"}},
    {"MigWithoutInstances", [](auto& all) { gpu(all, 1).readings.mig_enabled = true; }, {"fail mig 1"}},
    {"MemoryOfNobody",
     [](auto& all) { gpu(all, 0).readings.memory_used_bytes = 30 * kGibibyte; },
     {"warn memory-held 0"}},
    {"MemoryWhereTheDriverTellsNoProcesses",
     [](auto& all) {
       gpu(all, 0).readings.memory_used_bytes = 30 * kGibibyte;
       gpu(all, 0).has_process_list = false;
     },
     {}},
    {"MemoryOfAProcess",
     [](auto& all) {
       gpu(all, 0).readings.memory_used_bytes = 30 * kGibibyte;
       gpu(all, 0).processes = {{.pid = 1, .memory_bytes = 30 * kGibibyte}};
     },
     {}},
    {"MemoryOfAProcessThatDoesNotTell",
     [](auto& all) {
       gpu(all, 0).readings.memory_used_bytes = 30 * kGibibyte;
       gpu(all, 0).processes = {{.pid = 1}};
     },
     {}},
    {"Hot",
     [](auto& all) { gpu(all, 0).readings.throttle_reasons = {"hardware thermal slowdown"}; },
     {"warn clocks 0"}},
    {"AtItsPowerLimit",
     [](auto& all) {
       gpu(all, 0).readings.throttle_reasons = {"power cap", "idle"};
     },
     {}},
    {"PowerLimitLowered", [](auto& all) { gpu(all, 1).readings.power_limit_mw = 250'000; }, {"warn power-limit 1"}},
    {"EccNow", [](auto& all) { gpu(all, 0).readings.ecc_uncorrected_volatile = 1; }, {"fail ecc 0"}},
    {"EccLongAgo", [](auto& all) { gpu(all, 0).readings.ecc_uncorrected_aggregate = 1; }, {"warn ecc-history 0"}},
    {"RowsWaiting", [](auto& all) { gpu(all, 0).readings.retirement_pending = true; }, {"warn retired-memory 0"}},
    {"NoRowsLeft", [](auto& all) { gpu(all, 0).readings.remapping_failed = true; }, {"fail row-remapping 0"}},
    {"EccSwitched", [](auto& all) { gpu(all, 1).readings.ecc_after_reset = false; }, {"warn ecc-mode 1"}},
    {"MigSwitched", [](auto& all) { gpu(all, 1).readings.mig_after_reset = true; }, {"warn mig-mode 1"}},
    {"ALinkIsDown",
     [](auto& all) {
       gpu(all, 0).links = {{{.number = 0, .kind = "nvlink", .is_active = true}, {.number = 1, .kind = "nvlink"}}};
       gpu(all, 1).links = {{{.number = 0, .kind = "nvlink"}}};
     },
     {"warn nvlink 0"}},
    {"FewLanes", [](auto& all) { gpu(all, 0).readings.pcie_width = 8; }, {"warn pcie 0"}},
    {"SlowLink", [](auto& all) { gpu(all, 0).readings.pcie_generation = 1; }, {"warn pcie-speed 0"}},
    {"SlowLinkOfAnIdleGpu",
     [](auto& all) {
       gpu(all, 0).readings.pcie_generation = 1;
       gpu(all, 0).readings.utilization_percent = 0;
     },
     {}},
    {"XidOfTheHardware",
     [](auto& all) {
       all.kernel_log->events = {{"0000:af:00.0", 79, "79, GPU has fallen off the bus.", {}}};
     },
     {"fail kernel-log 1"}},
    {"XidOfAProgram",
     [](auto& all) {
       all.kernel_log->events = {{"0000:3b:00.0", 31, "31, Ch 1", {}}, {"0000:3b:00.0", 31, "31, Ch 2", {}}};
     },
     {"warn kernel-log 0"}},
    {"AGpuThatIsGoneHasAnXid",
     [](auto& all) {
       all.kernel_log->events = {{"0000:d8:00.0", 79, "79, gone", {}}};
     },
     {"fail kernel-log"}},
    {"KernelLogForbidden",
     [](auto& all) { all.kernel_log = KernelLog{.reason = "Operation not permitted"}; },
     {"skip kernel-log"}},
    {"FilesHang", [](auto& all) { all.system.reset(); }, {"fail files"}},
    {"CpuQuota", [](auto& all) { all.system->cgroup.cpus = 2; }, {"warn cpu"}},
    {"MemoryLimitAlone", [](auto& all) { all.system->cgroup.memory_bytes = 8 * kGibibyte; }, {}},
    {"KilledForMemory", [](auto& all) { all.system->cgroup.num_out_of_memory_kills = 2; }, {"warn memory"}},
    {"FewProcesses",
     [](auto& all) {
       all.system->cgroup.max_processes = 600;
       all.system->cgroup.num_processes = 300;
     },
     {"warn processes"}},
    {"DockersSharedMemory",
     [](auto& all) { all.system->shared_memory_bytes = all.system->shared_memory_free_bytes = 64 << 20; },
     {"warn shared-memory"}},
    {"FullSharedMemory", [](auto& all) { all.system->shared_memory_free_bytes = 1 << 20; }, {"warn shared-memory"}},
    {"FewFiles", [](auto& all) { all.system->max_open_files = 256; }, {"warn open-files"}},
    {"LockedMemoryMattersWithInfiniband",
     [](auto& all) {
       all.system->max_locked_bytes = 8 << 20;
       all.system->has_infiniband = true;
     },
     {"warn locked-memory"}},
    {"LockedMemoryDoesNotElse", [](auto& all) { all.system->max_locked_bytes = 8 << 20; }, {}},
    {"Iommu",
     [](auto& all) {
       for (auto& on_bus : all.system->pci_gpus) on_bus.iommu_type = "DMA-FQ";
     },
     {"warn iommu"}},
    {"IommuOfOneGpu", [](auto& all) { all.system->pci_gpus[0].iommu_type = "DMA"; }, {}},
};

INSTANTIATE_TEST_SUITE_P(Doctor, DoctorTable, testing::ValuesIn(kDoctorCases),
                         [](const auto& instance) { return instance.param.name; });

// The advice is that of the message with which libyoke_dist refuses to train on the CPU (yoke/dist/plug_choice.cpp).
TEST(Doctor, ATorchThatCannotUseAnAmdGpuSaysWhatToInstall) {
  Observations all;
  all.system.emplace();
  all.system->pci_gpus = {{"0000:c1:00.0", Vendor::kAmd, "amdgpu", ""}};
  all.torches = healthy().torches;
  const auto of_torch = [&] {
    const auto every = findings(all);
    return *std::find_if(every.begin(), every.end(), [](const auto& finding) { return finding.id == "torch"; });
  };
  EXPECT_EQ(of_torch().status, Status::kWarn);
  EXPECT_THAT(of_torch().found, HasSubstr("it cannot use the AMD GPU of this machine"));
  EXPECT_THAT(of_torch().advice, HasSubstr("install torch for ROCm"));
  EXPECT_THAT(of_torch().advice, HasSubstr("YOKE_DEVICE=cpu"));
  all.torches->clear();
  EXPECT_EQ(of_torch().status, Status::kSkip);
  EXPECT_THAT(of_torch().advice, HasSubstr("install torch for ROCm"))
      << "scripts/setup installs one for CUDA or the CPU";
  all.torches = {{.path = "/torch", .version = "2.11.0+rocm", .has_hip = true}};
  EXPECT_EQ(of_torch().status, Status::kOk);
}

TEST(Doctor, AmdWithoutItsParts) {
  Observations all;
  all.system.emplace();
  all.system->pci_gpus = {{"0000:c1:00.0", Vendor::kAmd, "amdgpu", ""}};
  all.system->nodes = {{"/dev/kfd", false, "root:render, mode 660"}};
  all.torches.emplace();
  all.kernel_log.emplace();
  EXPECT_THAT(wrong(all), ElementsAre("fail amd-driver", "warn rocm", "fail permissions", "skip torch"));
}

TEST(Doctor, ContradictingVariablesAreNamed) {
  auto all = healthy();
  all.environment.set("CUDA_VISIBLE_DEVICES", "0,0");
  all.runtime = GpuCount{0, "no device"};
  const auto lines = wrong(all);
  EXPECT_THAT(lines, testing::Contains("warn visibility"));
}

TEST(Doctor, OfARecordingOnlyDevicesAreLookedAt) {
  Observations all{.snapshot = healthy().snapshot, .has_devices_alone = true};
  EXPECT_THAT(wrong(all), IsEmpty());
  all.snapshot.devices[0].state = State::kLost;
  EXPECT_THAT(wrong(all), ElementsAre("fail state 0"));
}

TEST(Doctor, MessagesNameNumbersAndTimes) {
  auto all = healthy();
  all.kernel_log->events = {{"0000:3b:00.0", 79, "79, GPU has fallen off the bus.", std::chrono::minutes(10)}};
  std::string found;
  for (const auto& finding : findings(all)) {
    if (finding.status == Status::kFail) found = finding.found;
  }
  EXPECT_EQ(found, "0000:3b:00.0: Xid 79 (the GPU has fallen off the bus), 50:00 ago: 79, GPU has fallen off the bus.");
}

TEST(Doctor, JsonIsValidWhateverNamesHold) {
  const auto json = to_json(Finding{"state", Status::kFail, {"0"}, "lost: \xff\x1b[31m", "reset"});
  EXPECT_EQ(json["status"], "fail");
  EXPECT_NO_THROW(json.dump());
  EXPECT_TRUE(to_json(Finding{"state", Status::kOk, {}, "on", ""})["advice"].is_null());
}

}  // namespace
}  // namespace yoke::device
