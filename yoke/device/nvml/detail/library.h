// yoke/device/nvml/detail/library.h -- types and functions of NVIDIA's management library, opened by name at run time.
//
// The types are declared here instead of including nvml.h, so that yoke builds without NVIDIA's software. Layouts and
// numbers are the library's ABI (nvml.h of CUDA 12.9 and 13.0). The pointer to a function that the driver lacks is
// null.
#pragma once

#include <cstdint>
#include <string>

namespace yoke::device::nvml {

using Handle = struct NvmlDevice*;

enum Status : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kVersionMismatch = 18,
  kGpuNotFound = 28,
  kUnknownError = 999,
};

/// Describes a status in words, or by its number if it is not known here.
std::string describe(int status);

struct Memory {
  uint64_t total, free, used;  // bytes; `used` includes reserved memory
};

struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};

struct Utilization {
  uint32_t gpu, memory;  // percent
};

struct Pci {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

/// An entry of a process list in versions 2 and 3. Version 1 ends after `memory`. Early 535 drivers append 8 bytes.
struct Process {
  uint32_t pid;
  uint64_t memory;
  uint32_t gpu_instance, compute_instance;
};

struct ProcessSample {
  uint32_t pid;
  uint64_t time_us;
  uint32_t sm, memory, encoder, decoder;  // percent
};

struct Temperature {
  uint32_t version, sensor;
  int32_t celsius;
};

struct FieldValue {
  uint32_t field, scope;
  int64_t time_us, latency_us;
  uint32_t type;
  int32_t status;
  union {
    double d;
    uint32_t ui;
    uint64_t ull;
    int64_t sll;
  } value;
};

constexpr uint32_t versioned(size_t size, uint32_t version) { return static_cast<uint32_t>(size) | version << 24; }

template <typename... Args>
using Function = int (*)(Args...);
template <typename... Args>
using OfDevice = int (*)(Handle, Args...);
using TextOfDevice = OfDevice<char*, uint32_t>;
using NumberOfDevice = OfDevice<uint32_t*>;

/// The version of the entries in a list of processes.
enum class ProcessForm { kV1, kV2 };
struct ProcessFunction {
  OfDevice<uint32_t*, void*> function = nullptr;
  ProcessForm form = ProcessForm::kV2;
};

struct Library {
  Function<> init;
  Function<char*, uint32_t> driver_version;
  Function<int*> cuda_version;
  Function<uint32_t*> count;
  Function<uint32_t, Handle*> handle_by_index;

  TextOfDevice name, uuid, serial, vbios;
  OfDevice<Pci*> pci;
  NumberOfDevice minor_number, brand, architecture;
  OfDevice<int*, int*> compute_capability;
  OfDevice<uint32_t, unsigned long*> cpu_affinity;

  OfDevice<Memory*> memory;
  OfDevice<MemoryV2*> memory_v2;
  OfDevice<Utilization*> utilization;
  OfDevice<uint32_t*, uint32_t*> encoder_utilization, decoder_utilization;
  OfDevice<int, uint32_t*> temperature, temperature_threshold, clock, max_clock;
  OfDevice<Temperature*> temperature_v;
  NumberOfDevice fan, power, enforced_power_limit, default_power_limit;
  OfDevice<uint32_t*, uint32_t*> power_limits;
  OfDevice<uint64_t*> energy, throttle_reasons;
  NumberOfDevice pcie_generation, pcie_width, max_pcie_generation, max_pcie_width, pcie_replays;
  OfDevice<int, uint32_t*> pcie_throughput;
  OfDevice<int, int, uint64_t*> ecc_errors;
  OfDevice<uint32_t*, uint32_t*> ecc_mode;
  OfDevice<int, uint32_t*, uint64_t*> retired_pages;
  NumberOfDevice retirement_pending;
  OfDevice<uint32_t*, uint32_t*, uint32_t*, uint32_t*> remapped_rows;
  NumberOfDevice persistence_mode, display_active, performance_state, compute_mode;
  OfDevice<int, FieldValue*> field_values;

  ProcessFunction compute_processes, graphics_processes, mps_processes;
  OfDevice<ProcessSample*, uint32_t*, uint64_t> process_utilization;

  OfDevice<uint32_t*, uint32_t*> mig_mode;
  NumberOfDevice max_mig_devices, gpu_instance, compute_instance;
  OfDevice<uint32_t, Handle*> mig_handle;

  OfDevice<uint32_t, uint32_t*> nvlink_state;
  OfDevice<uint32_t, Pci*> nvlink_remote;
};

/// Opens `file` with dlopen and never closes it. Returns an empty string on success, otherwise the reason.
std::string load(const std::string& file, Library& library);

}  // namespace yoke::device::nvml
