// fakes/nvml/nvml_abi.h -- the part of NVML's binary interface that the fake library implements.
//
// yoke declares these types itself, so that the fake builds without CUDA. Layouts and numbers are those of nvml.h 13.3
// (structures without a version number have not changed since CUDA 11). All functions return a Status as int.
#pragma once

#include <cstddef>
#include <cstdint>

namespace yoke::fake_nvml {

using Handle = struct OpaqueDevice*;
using EventSet = struct OpaqueEventSet*;
using Size = unsigned int;
using Wide = unsigned long long;

enum Status : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kArgumentVersionMismatch = 25,
  kNotReady = 27,
  kGpuNotFound = 28,
  kUnknown = 999,
};

inline constexpr Wide kMemoryUnknown = ~0ULL;  // of a process whose memory use is not known
inline constexpr Size kNoInstance = ~0U;       // the ids of GPU instance and compute instance on a device without MIG
inline constexpr Wide kXidEvent = 8;

struct PciInfo {
  char bus_id_legacy[16];
  Size domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct Memory {
  Wide total, free, used;
};

struct MemoryV2 {
  Size version;
  Wide total, reserved, free, used;
};

struct Bar1Memory {
  Wide total, free, used;
};

struct Utilization {
  Size gpu, memory;
};

struct Temperature {
  Size version, sensor;
  int celsius;
};

struct ProcessV1 {
  Size pid;
  Wide memory;
};

struct ProcessV2 {  // the layout of version 3, too
  Size pid;
  Wide memory;
  Size gpu_instance, compute_instance;
};

struct ProcessSample {
  Size pid;
  Wide time_us;
  Size sm, memory, encoder, decoder;
};

struct ProcessSampleV2 {
  Wide time_us;
  Size pid, sm, memory, encoder, decoder, jpeg, ofa;
};

struct ProcessSamples {  // named nvmlProcessesUtilizationInfo_v1_t in nvml.h
  Size version, count;
  Wide last_seen_us;
  ProcessSampleV2* entries;
};

struct Attributes {
  Size multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
  Wide memory_mib;
};

struct EventV1 {
  Handle device;
  Wide type, data;
};

struct Event {
  Handle device;
  Wide type, data;
  Size gpu_instance, compute_instance;
};

enum ValueType : Size { kDouble = 0, kUnsigned = 1, kUnsignedLong = 2, kUnsignedLongLong = 3 };

struct FieldValue {
  Size id, scope;
  long long time_us, latency_us;
  Size type;
  int status;
  union {
    double d;
    Size ui;
    Wide ull;
  } value;
};

static_assert(sizeof(void*) == 8, "the layouts are those of 64-bit Linux");
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(Temperature) == 12);
static_assert(sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24 && sizeof(ProcessSample) == 32);
static_assert(sizeof(ProcessSampleV2) == 40 && sizeof(ProcessSamples) == 24 && sizeof(Attributes) == 40);
static_assert(sizeof(EventV1) == 24 && sizeof(Event) == 32 && sizeof(FieldValue) == 40);

constexpr Size versioned(size_t size, Size version) { return static_cast<Size>(size) | version << 24; }

}  // namespace yoke::fake_nvml
