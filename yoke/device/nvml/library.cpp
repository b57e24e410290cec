#include "yoke/device/nvml/detail/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>

namespace yoke::device::nvml {

// The library checks these sizes, because they are part of its structures' version numbers.
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(Pci) == 68 && sizeof(Process) == 24);
static_assert(sizeof(ProcessSample) == 32 && sizeof(Temperature) == 12 && sizeof(FieldValue) == 40);

std::string describe(int status) {
  switch (status) {
    case kNotSupported: return "not supported";
    case kNoPermission: return "no permission";
    case kDriverNotLoaded: return "the NVIDIA driver is not loaded";
    case kGpuIsLost: return "the GPU is lost (fallen off the bus)";
    case kResetRequired: return "the GPU needs a reset";
    case kOperatingSystem: return "the operating system or a cgroup blocks the GPU's device file";
    case kVersionMismatch:
      return "driver and library have different versions (reboot, or reload the driver, after an update)";
    case kFunctionNotFound: return "the library lacks this function";
    case kGpuNotFound: return "there is no GPU";
    case kUnknownError:
      return "the driver failed without a reason (NVML error 999); `sudo dmesg | grep NVRM` may have one, and to "
             "reload "
             "the driver or to reboot often mends it";
    default: return fmt::format("NVML error {}", status);
  }
}

namespace {

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  /// Binds the first of `names` that the library exports. (The library exports all versions of a function; nvml.h maps
  /// the plain name to the newest one.)
  template <typename Pointer>
  void bind(Pointer& pointer, std::initializer_list<const char*> names) const {
    pointer = nullptr;
    for (const char* name : names) {
      pointer = reinterpret_cast<Pointer>(dlsym(library_, name));
      if (pointer != nullptr) return;
    }
  }

  void bind_processes(ProcessFunction& function, const std::string& name) const {
    function.form = ProcessForm::kV2;
    bind(function.function, {(name + "_v3").c_str(), (name + "_v2").c_str()});
    if (function.function != nullptr) return;
    function.form = ProcessForm::kV1;
    bind(function.function, {name.c_str()});
  }

 private:
  void* library_;
};

}  // namespace

std::string load(const std::string& file, Library& library) {
  void* opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    // "NAME: cannot open shared object file: No such file or directory" is replaced; other errors are kept.
    const std::string reason = dlerror();
    return reason.find("No such file") != std::string::npos
               ? fmt::format("no NVIDIA driver ({} is not installed)", file)
               : reason;
  }
  const Symbols symbols(opened);
  symbols.bind(library.init, {"nvmlInit_v2", "nvmlInit"});
  symbols.bind(library.driver_version, {"nvmlSystemGetDriverVersion"});
  symbols.bind(library.cuda_version, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  symbols.bind(library.count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  symbols.bind(library.handle_by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  symbols.bind(library.name, {"nvmlDeviceGetName"});
  symbols.bind(library.uuid, {"nvmlDeviceGetUUID"});
  symbols.bind(library.serial, {"nvmlDeviceGetSerial"});
  symbols.bind(library.vbios, {"nvmlDeviceGetVbiosVersion"});
  symbols.bind(library.pci, {"nvmlDeviceGetPciInfo_v3"});  // older versions have a shorter structure
  symbols.bind(library.minor_number, {"nvmlDeviceGetMinorNumber"});
  symbols.bind(library.brand, {"nvmlDeviceGetBrand"});
  symbols.bind(library.architecture, {"nvmlDeviceGetArchitecture"});
  symbols.bind(library.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  symbols.bind(library.cpu_affinity, {"nvmlDeviceGetCpuAffinity"});
  symbols.bind(library.memory, {"nvmlDeviceGetMemoryInfo"});
  symbols.bind(library.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  symbols.bind(library.utilization, {"nvmlDeviceGetUtilizationRates"});
  symbols.bind(library.encoder_utilization, {"nvmlDeviceGetEncoderUtilization"});
  symbols.bind(library.decoder_utilization, {"nvmlDeviceGetDecoderUtilization"});
  symbols.bind(library.temperature, {"nvmlDeviceGetTemperature"});
  symbols.bind(library.temperature_v, {"nvmlDeviceGetTemperatureV"});
  symbols.bind(library.temperature_threshold, {"nvmlDeviceGetTemperatureThreshold"});
  symbols.bind(library.clock, {"nvmlDeviceGetClockInfo"});
  symbols.bind(library.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  symbols.bind(library.fan, {"nvmlDeviceGetFanSpeed"});
  symbols.bind(library.power, {"nvmlDeviceGetPowerUsage"});
  symbols.bind(library.enforced_power_limit, {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"});
  symbols.bind(library.default_power_limit, {"nvmlDeviceGetPowerManagementDefaultLimit"});
  symbols.bind(library.power_limits, {"nvmlDeviceGetPowerManagementLimitConstraints"});
  symbols.bind(library.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  symbols.bind(library.throttle_reasons,
               {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  symbols.bind(library.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  symbols.bind(library.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  symbols.bind(library.max_pcie_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  symbols.bind(library.max_pcie_width, {"nvmlDeviceGetMaxPcieLinkWidth"});
  symbols.bind(library.pcie_replays, {"nvmlDeviceGetPcieReplayCounter"});
  symbols.bind(library.pcie_throughput, {"nvmlDeviceGetPcieThroughput"});
  symbols.bind(library.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
  symbols.bind(library.ecc_mode, {"nvmlDeviceGetEccMode"});
  symbols.bind(library.retired_pages, {"nvmlDeviceGetRetiredPages"});
  symbols.bind(library.retirement_pending, {"nvmlDeviceGetRetiredPagesPendingStatus"});
  symbols.bind(library.remapped_rows, {"nvmlDeviceGetRemappedRows"});
  symbols.bind(library.persistence_mode, {"nvmlDeviceGetPersistenceMode"});
  symbols.bind(library.display_active, {"nvmlDeviceGetDisplayActive"});
  symbols.bind(library.performance_state, {"nvmlDeviceGetPerformanceState"});
  symbols.bind(library.compute_mode, {"nvmlDeviceGetComputeMode"});
  symbols.bind(library.field_values, {"nvmlDeviceGetFieldValues"});
  symbols.bind_processes(library.compute_processes, "nvmlDeviceGetComputeRunningProcesses");
  symbols.bind_processes(library.graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses");
  symbols.bind_processes(library.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses");
  symbols.bind(library.process_utilization, {"nvmlDeviceGetProcessUtilization"});
  symbols.bind(library.mig_mode, {"nvmlDeviceGetMigMode"});
  symbols.bind(library.max_mig_devices, {"nvmlDeviceGetMaxMigDeviceCount"});
  symbols.bind(library.gpu_instance, {"nvmlDeviceGetGpuInstanceId"});
  symbols.bind(library.compute_instance, {"nvmlDeviceGetComputeInstanceId"});
  symbols.bind(library.mig_handle, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  symbols.bind(library.nvlink_state, {"nvmlDeviceGetNvLinkState"});
  symbols.bind(library.nvlink_remote, {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"});

  if (library.init == nullptr || library.count == nullptr || library.handle_by_index == nullptr) {
    return fmt::format(
        "{} is not an NVML library (it lacks nvmlInit, nvmlDeviceGetCount or nvmlDeviceGetHandleByIndex)", file);
  }
  return "";
}

}  // namespace yoke::device::nvml
