#include "yoke/device/detail/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/clock.h"
#include "yoke/base/cpu_set.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/cpu/detail/files.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kKibibyte = 1024;

/// Reports the machine as one device. Does not use hwloc, because loading it takes longer than all reads here.
class CpuBackend : public Backend {
 public:
  explicit CpuBackend(fs::path sysroot) : sysroot_(std::move(sysroot)) {}

  std::string_view name() const override { return "cpu"; }
  Vendor vendor() const override { return Vendor::kCpu; }
  int64_t num_devices() const override { return 1; }
  BackendReport open() noexcept override { return {.backend = std::string(name()), .is_available = true}; }

  void read(int64_t /*number*/, const Want& want, Device& device,
            const std::function<void(const Device&)>& publish) noexcept override {
    if (facts_.name.empty()) read_facts();
    if (want.details && !has_details_) read_details();
    // These values may change while the machine runs.
    const auto limits = read_cgroup_limits(sysroot_);
    device.facts = facts_;
    device.has_process_list = want.processes;  // the list stays empty, because every process uses the CPU
    const auto allowed = find_allowed();
    device.facts.cpu_affinity = allowed.to_list();
    auto num_allowed = allowed.size();
    if (limits.cpus) num_allowed = std::min(num_allowed, std::max<int64_t>(1, std::llround(std::ceil(*limits.cpus))));
    device.facts.num_allowed_cpus = num_allowed;
    read_memory(limits, device.readings);
    read_utilization(device.readings);
    const auto load = parse_load(read_text(sysroot_ / "proc/loadavg").value_or(""));
    device.state = load.value_or(0) >= static_cast<double>(num_allowed) / 2 ? State::kBusy : State::kFree;
    publish(device);  // sensors may be slow
    device.readings.temperature_celsius = read_temperature();
    device.readings.power_mw = read_power();
  }

 private:
  struct Energy {
    int64_t microjoules = 0;
    int64_t range = 0;  ///< The counter wraps around to 0 after this value.
  };

  CpuSet all_cpus() const {
    const auto online = read_text(sysroot_ / "sys/devices/system/cpu/online").value_or("0");
    return CpuSet::parse_list(online).value_or(CpuSet());
  }

  /// Returns the CPUs in the affinity mask, which the kernel keeps within the cpuset.
  CpuSet find_allowed() const {
    const auto status = read_text(sysroot_ / "proc/self/status").value_or("");
    const auto list = find_line(status, "Cpus_allowed_list:");
    return list ? CpuSet::parse_list(*list).value_or(CpuSet()) : all_cpus();
  }

  void read_facts() {
    // The first page of /proc/cpuinfo has the CPU's name. The whole file is large, and its frequencies can be slow.
    facts_.name = cpu_name(read_text(sysroot_ / "proc/cpuinfo", 4096).value_or(""));
    facts_.num_cpus = all_cpus().size();
    const auto num_nodes = numbered(sysroot_ / "sys/devices/system/node", "node").size();
    facts_.num_numa_nodes = std::max<int64_t>(1, static_cast<int64_t>(num_nodes));  // 0 if the kernel lacks NUMA
  }

  void read_details() {
    has_details_ = true;
    std::set<int64_t> packages;
    std::set<std::string> cores;
    for (const auto cpu : all_cpus().to_vector()) {
      const auto topology = sysroot_ / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
      if (const auto package = read_number(topology / "physical_package_id")) packages.insert(*package);
      if (auto siblings = read_text(topology / "thread_siblings_list")) cores.insert(*std::move(siblings));
    }
    if (!packages.empty()) facts_.num_packages = static_cast<int64_t>(packages.size());
    if (!cores.empty()) facts_.num_cores = static_cast<int64_t>(cores.size());
  }

  void read_memory(const CgroupLimits& limits, Readings& readings) const {
    const auto memory = parse_properties(read_text(sysroot_ / "proc/meminfo").value_or(""));
    const auto total = memory.find("MemTotal");
    const auto available = memory.find("MemAvailable");
    constexpr int64_t kMost = INT64_MAX / kKibibyte;
    if (total == memory.end() || total->second < 0 || total->second > kMost) return;
    if (available == memory.end() || available->second < 0 || available->second > total->second) return;
    readings.memory_total_bytes = total->second * kKibibyte;
    readings.memory_used_bytes = (total->second - available->second) * kKibibyte;
    if (limits.memory_bytes && *limits.memory_bytes < *readings.memory_total_bytes) {
      readings.memory_total_bytes = limits.memory_bytes;
      readings.memory_used_bytes = limits.memory_used_bytes;
    }
    if (readings.memory_used_bytes) {
      readings.memory_free_bytes = std::max<int64_t>(0, *readings.memory_total_bytes - *readings.memory_used_bytes);
    }
  }

  /// Reads the utilisation since the last sample.
  void read_utilization(Readings& readings) {
    const auto now = parse_cpu_time(read_text(sysroot_ / "proc/stat", 4096).value_or(""));
    if (now && last_time_ && now->total > last_time_->total) {
      const auto busy = std::max<int64_t>(0, now->busy - last_time_->busy);
      readings.utilization_percent = std::min<int64_t>(100, busy * 100 / (now->total - last_time_->total));
    }
    last_time_ = now;
  }

  /// Returns the temperature of the hottest package.
  std::optional<int64_t> read_temperature() const {
    std::optional<int64_t> hottest;
    for (const auto& [number, monitor] : numbered(sysroot_ / "sys/class/hwmon", "hwmon")) {
      const auto driver = read_text(monitor / "name").value_or("");
      if (driver != "coretemp" && driver != "k10temp" && driver != "zenpower") continue;
      const auto value = read_number(monitor / "temp1_input");  // its hottest core, or the value that controls fans
      if (value) hottest = std::max(hottest.value_or(*value), *value);
    }
    return hottest ? std::optional(*hottest / 1000) : std::nullopt;
  }

  /// Returns the mean power of all packages since the last sample, from RAPL's energy counters. On most systems only
  /// root can read the counters.
  std::optional<int64_t> read_power() {
    std::vector<Energy> energy;
    for (const auto& [number, zone] : numbered(sysroot_ / "sys/class/powercap", "intel-rapl:")) {
      if (!read_text(zone / "name").value_or("").starts_with("package")) continue;
      const auto microjoules = read_number(zone / "energy_uj");
      if (!microjoules) return std::nullopt;
      energy.push_back({*microjoules, read_number(zone / "max_energy_range_uj").value_or(0)});
    }
    const auto now = Clock::now();
    const auto last_at = std::exchange(last_energy_at_, now);
    const auto last = std::exchange(last_energy_, energy);
    const auto elapsed_us = std::chrono::duration_cast<std::chrono::microseconds>(now - last_at).count();
    if (energy.empty() || last.size() != energy.size() || elapsed_us <= 0) return std::nullopt;
    double sum = 0;
    for (size_t i = 0; i < energy.size(); ++i) {
      const auto used = static_cast<double>(energy[i].microjoules) - static_cast<double>(last[i].microjoules);
      sum += used >= 0 ? used : used + static_cast<double>(energy[i].range);
    }
    return std::llround(sum * 1000 / static_cast<double>(elapsed_us));
  }

  const fs::path sysroot_;
  Facts facts_;
  bool has_details_ = false;
  std::optional<CpuTime> last_time_;
  std::vector<Energy> last_energy_;
  Clock::time_point last_energy_at_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const fs::path& sysroot) { return std::make_unique<CpuBackend>(sysroot); }

}  // namespace yoke::device
