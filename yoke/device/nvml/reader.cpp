#include "yoke/device/nvml/detail/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "yoke/base/cpu_set.h"

namespace yoke::device::nvml {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFF;             // "no instance", and N/A in 32 bits
constexpr uint64_t kUnknownMemory = ~uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE
constexpr int64_t kLargestPid = 1 << 22;           // Linux's PID_MAX_LIMIT
constexpr size_t kLargestEntry = 32;

enum Clock : int { kGraphics = 0, kSm = 1, kMemory = 2, kVideo = 3 };
enum Field : uint32_t { kMemoryTemperature = 82 };

struct Reason {
  uint64_t bit;
  const char* text;
};
// nvmlClocksEventReason*, formerly nvmlClocksThrottleReason*.
constexpr std::array kReasons = {
    Reason{0x1, "idle"},
    Reason{0x2, "application clocks"},
    Reason{0x4, "power cap"},
    Reason{0x8, "hardware slowdown"},
    Reason{0x10, "sync boost"},
    Reason{0x20, "software thermal slowdown"},
    Reason{0x40, "hardware thermal slowdown"},
    Reason{0x80, "power brake"},
    Reason{0x100, "display clocks"},
};

std::string architecture_name(int64_t number) {
  constexpr std::array kNames = {"Kepler", "Maxwell", "Pascal", "Volta",    "Turing",
                                 "Ampere", "Ada",     "Hopper", "Blackwell"};
  const auto i = number - 2;
  return i >= 0 && i < static_cast<int64_t>(kNames.size()) ? kNames[static_cast<size_t>(i)] : "";
}

std::string brand_name(int64_t number) {
  constexpr std::array kNames = {
      "",           "Quadro",       "Tesla",      "NVS",         "GRID",           "GeForce",
      "Titan",      "NVIDIA vApps", "NVIDIA vPC", "NVIDIA vCS",  "NVIDIA RTX vWS", "NVIDIA Cloud Gaming",
      "Quadro RTX", "NVIDIA RTX",   "NVIDIA",     "GeForce RTX", "Titan RTX"};
  return number >= 0 && number < static_cast<int64_t>(kNames.size()) ? kNames[static_cast<size_t>(number)] : "";
}

std::optional<std::string> compute_mode_name(std::optional<int64_t> mode) {
  constexpr std::array kNames = {"default", "exclusive_thread", "prohibited", "exclusive_process"};
  if (!mode || *mode < 0 || *mode >= static_cast<int64_t>(kNames.size())) return std::nullopt;
  return kNames[static_cast<size_t>(*mode)];
}

bool is_plausible(const Process& process) { return process.pid > 0 && process.pid <= kLargestPid; }

/// Formats a bit mask as "0-31,64-95".
std::string cpu_list(const std::vector<unsigned long>& mask) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  CpuSet cpus;
  for (size_t cpu = 0; cpu < mask.size() * kBits; ++cpu) {
    if ((mask[cpu / kBits] >> cpu % kBits & 1) != 0) cpus.add(static_cast<int64_t>(cpu));
  }
  return cpus.to_list();
}

}  // namespace

std::string pci_bus_id(const Pci& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

std::vector<Process> parse_processes(const std::vector<std::byte>& buffer, size_t count, ProcessForm form) {
  const auto parse = [&](size_t stride) {
    std::vector<Process> processes(count, Process{0, 0, kNone, kNone});
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&processes[i], buffer.data() + i * stride, std::min(stride, sizeof(Process)));
    }
    return processes;
  };
  const auto num_plausible = [](const std::vector<Process>& all) { return std::ranges::count_if(all, is_plausible); };
  auto processes = parse(form == ProcessForm::kV1 ? 16 : sizeof(Process));
  if (form == ProcessForm::kV1 || std::ranges::all_of(processes, is_plausible)) return processes;
  if (auto larger = parse(kLargestEntry); num_plausible(larger) > num_plausible(processes)) return larger;
  return processes;
}

std::optional<int64_t> Reader::number(NumberOfDevice function) {
  uint32_t value = 0;
  return call(function, &value) && value != kNone ? std::optional<int64_t>(value) : std::nullopt;
}

std::optional<bool> Reader::flag(NumberOfDevice function) {
  const auto value = number(function);
  return value ? std::optional(*value == 1) : std::nullopt;
}

std::string Reader::text(TextOfDevice function) {
  std::array<char, 128> buffer = {};  // NVML's longest text has 96 bytes
  return call(function, buffer.data(), static_cast<uint32_t>(buffer.size() - 1)) ? std::string(buffer.data()) : "";
}

std::optional<int64_t> Reader::clock(OfDevice<int, uint32_t*> function, int domain) {
  uint32_t mhz = 0;
  return call(function, domain, &mhz) ? std::optional<int64_t>(mhz) : std::nullopt;
}

std::optional<int64_t> Reader::threshold(int which) {
  uint32_t celsius = 0;
  return call(library_.temperature_threshold, which, &celsius) ? std::optional<int64_t>(celsius) : std::nullopt;
}

std::optional<int64_t> Reader::ecc(int error_type, int counter_type) {
  uint64_t count = 0;
  return call(library_.ecc_errors, error_type, counter_type, &count) ? std::optional(static_cast<int64_t>(count))
                                                                     : std::nullopt;
}

void Reader::read_identity(Facts& facts) {
  facts.name = text(library_.name);
  facts.uuid = text(library_.uuid);
  Pci pci = {};
  if (call(library_.pci, &pci)) facts.pci_bus_id = pci_bus_id(pci);
  int major = 0;
  int minor = 0;
  if (call(library_.compute_capability, &major, &minor)) facts.compute_capability = fmt::format("{}.{}", major, minor);
}

void Reader::read_details(Facts& facts) {
  facts.serial = text(library_.serial);
  facts.vbios = text(library_.vbios);
  if (const auto value = number(library_.architecture)) facts.architecture = architecture_name(*value);
  if (const auto value = number(library_.brand)) facts.brand = brand_name(*value);
  facts.minor_number = number(library_.minor_number);
  std::vector<unsigned long> mask(32, 0);  // 2048 processors
  if (call(library_.cpu_affinity, static_cast<uint32_t>(mask.size()), mask.data())) facts.cpu_affinity = cpu_list(mask);
  uint32_t least = 0;
  uint32_t most = 0;
  if (call(library_.power_limits, &least, &most)) {
    facts.power_limit_min_mw = least;
    facts.power_limit_max_mw = most;
  }
  facts.power_limit_default_mw = number(library_.default_power_limit);
  facts.clock_sm_max_mhz = clock(library_.max_clock, kSm);
  facts.clock_memory_max_mhz = clock(library_.max_clock, kMemory);
  facts.pcie_generation_max = number(library_.max_pcie_generation);
  facts.pcie_width_max = number(library_.max_pcie_width);
  facts.temperature_shutdown_celsius = threshold(0);
  facts.temperature_slowdown_celsius = threshold(1);
}

void Reader::read_memory(Readings& readings) {
  MemoryV2 v2 = {.version = versioned(sizeof(MemoryV2), 2)};
  last_status_ = kNotSupported;
  if (call(library_.memory_v2, &v2)) {
    readings.memory_total_bytes = static_cast<int64_t>(v2.total);
    readings.memory_reserved_bytes = static_cast<int64_t>(v2.reserved);
    readings.memory_free_bytes = static_cast<int64_t>(v2.free);
    readings.memory_used_bytes = static_cast<int64_t>(v2.used);
    return;
  }
  Memory v1 = {};
  if (!call(library_.memory, &v1)) {
    // Of all GPUs, only those that compute in the memory of the machine (GB10, Jetson) have no memory to tell of.
    if (last_status_ == kNotSupported) readings.unified_memory = true;
    return;
  }
  readings.memory_total_bytes = static_cast<int64_t>(v1.total);
  readings.memory_free_bytes = static_cast<int64_t>(v1.free);
  readings.memory_used_bytes = static_cast<int64_t>(v1.used);
}

void Reader::read_basics(Readings& readings) {
  read_memory(readings);
  Utilization utilization = {};
  if (call(library_.utilization, &utilization)) {
    readings.utilization_percent = utilization.gpu;
    readings.memory_utilization_percent = utilization.memory;
  }
  uint32_t celsius = 0;
  Temperature versioned_temperature = {.version = versioned(sizeof(Temperature), 1)};
  if (call(library_.temperature, 0, &celsius)) {
    readings.temperature_celsius = celsius;
  } else if (call(library_.temperature_v, &versioned_temperature)) {
    readings.temperature_celsius = versioned_temperature.celsius;
  }
  readings.power_mw = number(library_.power);
  readings.power_limit_mw = number(library_.enforced_power_limit);
  readings.compute_mode = compute_mode_name(number(library_.compute_mode));
  read_memory_errors(readings);
}

void Reader::read_details(Readings& readings) {
  uint32_t percent = 0;
  uint32_t period_us = 0;
  if (call(library_.encoder_utilization, &percent, &period_us)) readings.encoder_utilization_percent = percent;
  if (call(library_.decoder_utilization, &percent, &period_us)) readings.decoder_utilization_percent = percent;
  FieldValue field = {.field = kMemoryTemperature};
  if (call(library_.field_values, 1, &field) && field.status == kSuccess && field.value.ui > 0) {
    readings.memory_temperature_celsius = field.value.ui;  // 0 if there is no sensor
  }
  readings.fan_percent = number(library_.fan);
  uint64_t value = 0;
  if (call(library_.energy, &value)) readings.energy_mj = static_cast<int64_t>(value);
  readings.clock_sm_mhz = clock(library_.clock, kSm);
  readings.clock_memory_mhz = clock(library_.clock, kMemory);
  readings.clock_graphics_mhz = clock(library_.clock, kGraphics);
  readings.clock_video_mhz = clock(library_.clock, kVideo);
  if (call(library_.throttle_reasons, &value)) {
    auto& reasons = readings.throttle_reasons.emplace();
    for (const auto& reason : kReasons) {
      if ((value & reason.bit) != 0) reasons.emplace_back(reason.text);
    }
  }
  readings.pcie_generation = number(library_.pcie_generation);
  readings.pcie_width = number(library_.pcie_width);
  readings.pcie_replays = number(library_.pcie_replays);
  readings.ecc_corrected_volatile = ecc(0, 0);
  readings.ecc_corrected_aggregate = ecc(0, 1);
  readings.ecc_uncorrected_aggregate = ecc(1, 1);
  uint32_t current = 0;
  uint32_t pending = 0;
  if (call(library_.ecc_mode, &current, &pending)) {
    readings.ecc_enabled = current == 1;
    if (pending != current && pending <= 1) readings.ecc_after_reset = pending == 1;
  }
  int64_t retired = 0;
  bool has_retired = false;
  for (const int cause : {0, 1}) {
    uint32_t pages = 0;  // a call with room for 0 pages returns their number
    const int status = library_.retired_pages == nullptr ? static_cast<int>(kFunctionNotFound)
                                                         : library_.retired_pages(handle_, cause, &pages, nullptr);
    if (status == kSuccess || status == kInsufficientSize) {
      has_retired = true;
      retired += pages;
    }
  }
  if (has_retired) readings.retired_pages = retired;
  readings.persistence_mode = flag(library_.persistence_mode);
  readings.display_active = flag(library_.display_active);
  if (const auto state = number(library_.performance_state); state && *state < 16) {
    readings.performance_state = fmt::format("P{}", *state);  // 32 is "unknown"
  }
}

/// What tells whether the memory can be relied on; claims regard it, so it is not among the details.
void Reader::read_memory_errors(Readings& readings) {
  readings.ecc_uncorrected_volatile = ecc(1, 0);
  readings.retirement_pending = flag(library_.retirement_pending);
  uint32_t corrected = 0;
  uint32_t uncorrected = 0;
  uint32_t is_pending = 0;
  uint32_t has_failed = 0;
  if (call(library_.remapped_rows, &corrected, &uncorrected, &is_pending, &has_failed)) {
    readings.remapped_rows = int64_t{corrected} + uncorrected;
    readings.retirement_pending = is_pending == 1 || readings.retirement_pending.value_or(false);
    readings.remapping_failed = has_failed == 1;
  }
}

void Reader::read_pcie_throughput(Readings& readings) {
  uint32_t kilobytes = 0;
  if (call(library_.pcie_throughput, 0, &kilobytes)) readings.pcie_tx_bytes_per_second = int64_t{kilobytes} * 1024;
  if (call(library_.pcie_throughput, 1, &kilobytes)) readings.pcie_rx_bytes_per_second = int64_t{kilobytes} * 1024;
}

/// Adds the processes that `function` lists, and returns its status.
int Reader::add_processes(const ProcessFunction& function, const std::string& type,
                          std::vector<DeviceProcess>& processes) {
  if (function.function == nullptr) return kFunctionNotFound;
  // The number of processes may grow between two calls. Spare room saves a call.
  std::vector<std::byte> buffer(64 * kLargestEntry);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto room = static_cast<uint32_t>(buffer.size() / kLargestEntry);
    uint32_t count = room;
    const int status = function.function(handle_, &count, buffer.data());
    if (status == kGpuIsLost || status == kResetRequired) loss_ = status;
    if (status == kInsufficientSize && count > room && count < 1 << 20) {
      buffer.assign((size_t{count} + 16) * kLargestEntry, std::byte{0});
      continue;
    }
    if (status != kSuccess) return status;
    if (count > room) return kInsufficientSize;
    for (const auto& entry : parse_processes(buffer, count, function.form)) {
      const auto known = std::ranges::find_if(processes, [&](const DeviceProcess& process) {
        return process.pid == entry.pid && process.gpu_instance.value_or(kNone) == entry.gpu_instance;
      });
      if (known != processes.end()) {  // a process that computes and draws is in both lists, with the same memory
        if (known->type.find(type) == std::string::npos) known->type += "+" + type;
        continue;
      }
      auto& process = processes.emplace_back();
      process.pid = entry.pid;
      process.type = type;
      if (entry.memory != kUnknownMemory) process.memory_bytes = static_cast<int64_t>(entry.memory);
      if (entry.gpu_instance != kNone) process.gpu_instance = entry.gpu_instance;
      if (entry.compute_instance != kNone) process.compute_instance = entry.compute_instance;
    }
    return kSuccess;
  }
  return kInsufficientSize;
}

void Reader::read_processes(Device& device) {
  struct List {
    const ProcessFunction& function;
    const char* type;
  };
  for (const auto& list : {List{library_.compute_processes, "compute"}, List{library_.mps_processes, "mps"},
                           List{library_.graphics_processes, "graphics"}}) {
    const int status = add_processes(list.function, list.type, device.processes);
    const bool is_compute = &list.function == &library_.compute_processes;
    if (is_compute) device.has_process_list = status == kSuccess;
    // MIG devices have no list of graphics, and not all drivers may say so by the same status.
    const bool is_missing =
        status == kNotSupported || status == kFunctionNotFound || (status == kInvalidArgument && !is_compute);
    if (status == kSuccess || is_missing) continue;
    device.has_process_list = false;
    if (device.process_list_error.empty()) device.process_list_error = describe(status);
  }
}

void Reader::read_process_utilization(std::vector<DeviceProcess>& processes) {
  if (library_.process_utilization == nullptr) return;
  std::vector<ProcessSample> samples;
  int status = kInsufficientSize;
  for (int attempt = 0; attempt < 4 && status == kInsufficientSize; ++attempt) {
    uint32_t count = 0;
    status = library_.process_utilization(handle_, nullptr, &count, 0);
    if (status != kInsufficientSize) break;
    samples.resize(size_t{count} + 16);
    count = static_cast<uint32_t>(samples.size());
    status = library_.process_utilization(handle_, samples.data(), &count, 0);
    if (status == kSuccess) samples.resize(std::min<size_t>(count, samples.size()));
  }
  if (status == kNotFound) samples.clear();  // no process has run recently
  if (status != kSuccess && status != kNotFound) return;
  // The buffer holds the samples of some seconds. The newest sample of each process is used, unless it is much older
  // than the newest sample of all processes.
  constexpr uint64_t kStaleUs = 2'000'000;
  uint64_t newest = 0;
  for (const auto& sample : samples) newest = std::max(newest, sample.time_us);
  for (auto& process : processes) {
    process.utilization_percent = 0;
    uint64_t time = newest < kStaleUs ? 0 : newest - kStaleUs;
    for (const auto& sample : samples) {
      if (sample.pid != process.pid || sample.time_us < time) continue;
      time = sample.time_us;
      process.utilization_percent = sample.sm;
    }
  }
}

std::vector<Link> Reader::read_links() {
  constexpr uint32_t kMostLinks = 36;
  std::vector<Link> links;
  for (uint32_t i = 0; i < kMostLinks; ++i) {
    uint32_t is_active = 0;
    if (!call(library_.nvlink_state, i, &is_active)) continue;
    Link link{.number = i, .kind = "nvlink", .is_active = is_active == 1};
    Pci remote = {};
    if (link.is_active && call(library_.nvlink_remote, i, &remote)) link.remote_pci_bus_id = pci_bus_id(remote);
    links.push_back(std::move(link));
  }
  return links;
}

void Reader::read_mig_mode(Readings& readings) {
  uint32_t current = 0;
  uint32_t pending = 0;
  if (!call(library_.mig_mode, &current, &pending)) return;
  readings.mig_enabled = current == 1;
  if (pending != current && pending <= 1) readings.mig_after_reset = pending == 1;
}

std::vector<std::pair<int64_t, Handle>> Reader::mig_handles() {
  std::vector<std::pair<int64_t, Handle>> handles;
  const auto most = number(library_.max_mig_devices).value_or(0);
  for (int64_t i = 0; i < most; ++i) {
    Handle handle = nullptr;
    if (call(library_.mig_handle, static_cast<uint32_t>(i), &handle)) handles.emplace_back(i, handle);
  }
  return handles;
}

}  // namespace yoke::device::nvml
