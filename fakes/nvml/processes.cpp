// The fake's functions about processes and MIG instances.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "call.h"

namespace yoke::fake_nvml {
namespace {

struct Process {
  Size pid;
  Wide memory;
  Size gpu_instance, compute_instance;
  const Json* fields;
};

Size pid_of(const Json& process) {
  const Json& pid = member(process, "pid");
  if (pid == "self") return static_cast<Size>(getpid());
  if (pid == "parent") return static_cast<Size>(getppid());
  return pid.get<Size>();
}

void append(const Target& target, const Json& of, char type, const Json* instance, std::vector<Process>& out) {
  for (const Json& process : member(of, "processes")) {
    if (process.value("type", "C").find(type) == std::string::npos) continue;
    const Answer mib = resolve(target.state, member(process, "memory_mib"));
    const Wide memory =
        mib.status == kSuccess ? static_cast<Wide>(std::llround(mib.number * (1 << 20))) : kMemoryUnknown;
    const auto instance_id = [&](const char* name) -> Size {
      return process.value(name, instance == nullptr ? kNoInstance : instance->value(name, kNoInstance));
    };
    out.push_back({pid_of(process), memory, instance_id("gpu_instance"), instance_id("compute_instance"), &process});
  }
}

/// Returns the processes of a device and of its MIG instances, as a privileged caller sees them.
std::vector<Process> processes_of(const Target& target, char type) {
  std::vector<Process> processes;
  append(target, target.fields, type, target.is_instance() ? &target.fields : nullptr, processes);
  if (target.is_instance()) return processes;
  for (const Json& instance : member(target.device, "mig", "instances")) {
    if (instance.is_object()) append(target, instance, type, &instance, processes);
  }
  return processes;
}

/// Stores `num_entries` in `count`. Returns kSuccess if the caller's array is large enough.
int announce(size_t num_entries, Size* count, const void* array) {
  if (count == nullptr) return kInvalidArgument;
  const bool fits = *count >= num_entries;
  *count = static_cast<Size>(num_entries);
  if (!fits) return kInsufficientSize;
  return num_entries > 0 && array == nullptr ? kInvalidArgument : kSuccess;
}

/// Touches the file by which a test knows that the processes were read.
void note_listed(const Target& target) {
  const Json& path = member(target.device, "touched_when_listed");
  if (path.is_string()) std::ofstream(path.get<std::string>(), std::ios::app);
}

int list(const char* function, Handle handle, char type, int version, Size* count, void* array) noexcept {
  return on_device(function, handle, [&](const Target& target) -> int {
    if (member(target.fields, "processes").is_string()) return status_of(member(target.fields, "processes"));
    if (member(target.fields, "processes").is_null()) return kNotSupported;
    const auto processes = processes_of(target, type);
    const int status = announce(processes.size(), count, array);
    if (status != kSuccess) return status;
    size_t stride = version == 1 ? sizeof(ProcessV1) : sizeof(ProcessV2);
    if (version == 3) stride = target.state.root.value("process_entry_bytes", stride);
    auto* out = static_cast<char*>(array);
    for (const auto& process : processes) {
      const ProcessV2 entry{process.pid, process.memory, process.gpu_instance, process.compute_instance};
      std::memset(out, 0, stride);
      std::memcpy(out, &entry, std::min(stride, sizeof entry));
      out += stride;
    }
    if (type == 'C') note_listed(target);
    return kSuccess;
  });
}

/// Returns a sample for each process with any utilisation. Like the driver's samples, they are a sixth of a second old.
std::vector<ProcessSample> samples_of(const Target& target, Wide last_seen_us) {
  using namespace std::chrono;
  constexpr Wide kPeriodUs = 166667;
  const Wide now_us = static_cast<Wide>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
  const Wide time_us = now_us - now_us % kPeriodUs;
  std::vector<ProcessSample> samples;
  if (time_us <= last_seen_us) return samples;
  for (const char type : {'C', 'G'}) {
    for (const auto& process : processes_of(target, type)) {
      const bool is_listed = type == 'G' && process.fields->value("type", "C").find('C') != std::string::npos;
      ProcessSample sample{process.pid, time_us, 0, 0, 0, 0};
      store(resolve(target.state, member(*process.fields, "sm")), &sample.sm);
      store(resolve(target.state, member(*process.fields, "memory")), &sample.memory);
      store(resolve(target.state, member(*process.fields, "encoder")), &sample.encoder);
      store(resolve(target.state, member(*process.fields, "decoder")), &sample.decoder);
      if (!is_listed && sample.sm + sample.memory + sample.encoder + sample.decoder > 0) samples.push_back(sample);
    }
  }
  return samples;
}

constexpr size_t kSampleBuffer = 100;  // the driver asks for room for 100 samples, whatever the number of processes

}  // namespace
}  // namespace yoke::fake_nvml

using namespace yoke::fake_nvml;  // NOLINT: only definitions of the C interface follow

extern "C" {

int nvmlDeviceGetComputeRunningProcesses(Handle device, Size* count, void* array) {
  return list(__func__, device, 'C', 1, count, array);
}
int nvmlDeviceGetComputeRunningProcesses_v2(Handle device, Size* count, void* array) {
  return list(__func__, device, 'C', 2, count, array);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, Size* count, void* array) {
  return list(__func__, device, 'C', 3, count, array);
}
int nvmlDeviceGetGraphicsRunningProcesses(Handle device, Size* count, void* array) {
  return list(__func__, device, 'G', 1, count, array);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(Handle device, Size* count, void* array) {
  return list(__func__, device, 'G', 2, count, array);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle device, Size* count, void* array) {
  return list(__func__, device, 'G', 3, count, array);
}
int nvmlDeviceGetMPSComputeRunningProcesses(Handle device, Size* count, void* array) {
  return list(__func__, device, 'M', 1, count, array);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v2(Handle device, Size* count, void* array) {
  return list(__func__, device, 'M', 2, count, array);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle device, Size* count, void* array) {
  return list(__func__, device, 'M', 3, count, array);
}

int nvmlDeviceGetProcessUtilization(Handle device, ProcessSample* array, Size* count, Wide last_seen_us) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (count == nullptr) return kInvalidArgument;
    if (target.is_instance() || target.has_instances()) return kNotSupported;
    const auto samples = samples_of(target, last_seen_us);
    if (array == nullptr) {
      *count = static_cast<Size>(std::max(samples.size(), kSampleBuffer));
      return kInsufficientSize;
    }
    if (samples.empty()) return kNotFound;
    const int status = announce(samples.size(), count, array);
    if (status == kSuccess) std::copy(samples.begin(), samples.end(), array);
    return status;
  });
}

int nvmlDeviceGetProcessesUtilizationInfo(Handle device, ProcessSamples* info) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (info == nullptr) return kInvalidArgument;
    if (info->version != versioned(sizeof(ProcessSamples), 1)) return kArgumentVersionMismatch;
    if (target.is_instance() || target.has_instances()) return kNotSupported;
    const auto samples = samples_of(target, info->last_seen_us);
    if (samples.empty() && info->entries != nullptr) return kNotFound;
    const int status = announce(samples.size(), &info->count, info->entries);
    if (status != kSuccess) return status;
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto& [pid, time_us, sm, memory, encoder, decoder] = samples[i];
      info->entries[i] = {time_us, pid, sm, memory, encoder, decoder, 0, 0};
    }
    return kSuccess;
  });
}

int nvmlDeviceGetMigMode(Handle device, Size* current, Size* pending) {
  return on_device(__func__, device, [&](const Target& target) {
    const int status = store(target.number("mig", "mode"), current);
    return status == kSuccess ? store(target.number("mig", "pending"), pending) : status;
  });
}

int nvmlDeviceGetMaxMigDeviceCount(Handle device, Size* count) {
  return on_device(__func__, device, [&](const Target& target) {
    const Answer mode = target.number("mig", "mode");  // nvml.h: 0 if MIG is off or not supported
    return store(
        mode.status == kSuccess && mode.number > 0 ? target.number("mig", "max_instances") : Answer{kSuccess, 0},
        count);
  });
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, Size index, Handle* instance) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    const Json& instances = member(target.device, "mig", "instances");
    const Json& limit = member(target.device, "mig", "max_instances");
    if (instance == nullptr || target.is_instance()) return kInvalidArgument;
    if (limit.is_null()) return kNotSupported;
    if (index >= std::max<size_t>(instances.size(), limit.get<size_t>())) return kInvalidArgument;
    if (index >= instances.size() || !instances[index].is_object()) return kNotFound;
    *instance = handle_of({target.place.device, static_cast<int>(index)});
    return kSuccess;
  });
}

int nvmlDeviceIsMigDeviceHandle(Handle device, Size* is_instance) {
  return on_device(__func__, device, [&](const Target& target) {
    return store({kSuccess, target.is_instance() ? 1.0 : 0.0}, is_instance);
  });
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle device, Handle* parent) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (parent == nullptr || !target.is_instance()) return kInvalidArgument;
    *parent = handle_of({target.place.device, -1});
    return kSuccess;
  });
}

int nvmlDeviceGetGpuInstanceId(Handle device, Size* id) {
  return on_device(__func__, device, [&](const Target& target) { return store(target.number("gpu_instance"), id); });
}

int nvmlDeviceGetComputeInstanceId(Handle device, Size* id) {
  return on_device(__func__, device,
                   [&](const Target& target) { return store(target.number("compute_instance"), id); });
}

int nvmlDeviceGetAttributes_v2(Handle device, Attributes* attributes) {
  return on_device(__func__, device, [&](const Target& target) -> int {
    if (attributes == nullptr) return kInvalidArgument;
    if (!target.is_instance()) return kNotSupported;
    *attributes = {};
    const auto part = [&](const char* name, auto& out) { store(target.number("attributes", name), &out); };
    part("multiprocessors", attributes->multiprocessors);
    part("copy_engines", attributes->copy_engines);
    part("decoders", attributes->decoders);
    part("encoders", attributes->encoders);
    part("jpeg", attributes->jpeg);
    part("ofa", attributes->ofa);
    part("gpu_slices", attributes->gpu_slices);
    part("compute_slices", attributes->compute_slices);
    store(target.number("memory_mib", "total"), &attributes->memory_mib);
    return kSuccess;
  });
}

}  // extern "C"
