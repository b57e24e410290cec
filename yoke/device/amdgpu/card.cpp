#include "yoke/device/amdgpu/detail/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::device::amdgpu {
namespace {

namespace fs = std::filesystem;

/// Returns the folder of the topmost bridge of a card. A Radeon card has its own PCIe bridges. Its GPU reports only the
/// speed of the link to these; the link to the machine is that of the topmost bridge.
fs::path port_of(const fs::path& folder) {
  std::error_code error;
  auto port = fs::canonical(folder, error);
  if (error) return folder;
  for (auto parent = port.parent_path(); parent.has_relative_path(); parent = parent.parent_path()) {
    constexpr int64_t kAti = 0x1002, kPciBridge = 0x0604;
    if (read_number(parent / "vendor") != kAti || read_number(parent / "class").value_or(0) >> 8 != kPciBridge) break;
    port = parent;
  }
  return port;
}

}  // namespace

Card::Card(fs::path folder, fs::path sysroot)
    : folder_(std::move(folder)), sysroot_(std::move(sysroot)), port_(port_of(folder_)) {
  const auto monitors = numbered(folder_ / "hwmon", "hwmon");
  if (monitors.empty()) return;
  hwmon_ = monitors.front().second;
  for (const auto* kind : {"temp", "freq"}) {
    for (int number = 1; number <= 4; ++number) {
      auto prefix = fmt::format("{}/{}{}", hwmon_.native(), kind, number);
      if (const auto label = read_text(prefix + "_label")) {
        sensors_.emplace(fmt::format("{} {}", kind, *label), std::move(prefix));
      }
    }
  }
}

bool Card::is_there() const { return read_text(folder_ / "vendor").has_value(); }

bool Card::is_asleep() const { return read_text(folder_ / "power" / "runtime_status") == "suspended"; }

std::optional<int64_t> Card::sensor(std::string_view label, std::string_view what, int64_t divisor) const {
  const auto found = sensors_.find(label);
  const auto value = found == sensors_.end() ? std::nullopt : read_number(fmt::format("{}_{}", found->second, what));
  return value ? std::optional(*value / divisor) : std::nullopt;
}

std::optional<int64_t> Card::power(std::string_view file) const {
  if (hwmon_.empty()) return std::nullopt;
  const auto microwatts = read_number(hwmon_ / file);
  // On a card with two GPUs (MI250X), the first one reports the power of both, and the second one reports 0 in every
  // file.
  return microwatts.value_or(0) > 0 ? std::optional(*microwatts / 1000) : std::nullopt;
}

void Card::read_identity(Facts& facts) const {
  const auto device_id = read_number(folder_ / "device").value_or(0);
  const auto product = text_of(folder_ / "product_name");
  const auto name = card_name(device_id, read_number(folder_ / "revision").value_or(0), sysroot_);
  facts.name = name ? *name : !product.empty() ? product : fmt::format("AMD 0x{:04x}", device_id);
  const auto id = text_of(folder_ / "unique_id");
  if (facts.uuid.empty() && id.size() == 16 && id.find_first_not_of('0') != id.npos) facts.uuid = "GPU-" + id;
  if (!facts.minor_number) {
    const auto nodes = numbered(folder_ / "drm", "renderD");
    if (!nodes.empty()) facts.minor_number = nodes.front().first;
  }
}

void Card::read_details(Facts& facts) const {
  facts.serial = text_of(folder_ / "serial_number");
  facts.vbios = text_of(folder_ / "vbios_version");
  facts.cpu_affinity = text_of(folder_ / "local_cpulist");
  const auto node = read_number(folder_ / "numa_node");
  if (node && *node >= 0) facts.numa_node = node;
  facts.power_limit_min_mw = power("power1_cap_min");
  facts.power_limit_max_mw = power("power1_cap_max");
  facts.power_limit_default_mw = power("power1_cap_default");
  facts.temperature_slowdown_celsius = sensor("temp edge", "crit", 1000);
  facts.temperature_shutdown_celsius = sensor("temp edge", "emergency", 1000);
  facts.clock_sm_max_mhz = highest_clock_mhz(text_of(folder_ / "pp_dpm_sclk"));
  facts.clock_memory_max_mhz = highest_clock_mhz(text_of(folder_ / "pp_dpm_mclk"));
  facts.pcie_generation_max = pcie_generation(text_of(port_ / "max_link_speed"));
  facts.pcie_width_max = read_number(port_ / "max_link_width");
}

void Card::read_memory_of(std::string_view kind, Readings& readings) const {
  readings.memory_total_bytes = read_number(folder_ / fmt::format("mem_info_{}_total", kind));
  readings.memory_used_bytes = read_number(folder_ / fmt::format("mem_info_{}_used", kind));
}

void Card::read_memory(Readings& readings) const { read_memory_of("vram", readings); }

void Card::read_unified_memory(Readings& readings) const {
  Readings shared;
  read_memory_of("gtt", shared);
  read_memory_of("vram", readings);
  if (shared.memory_total_bytes.value_or(0) <= readings.memory_total_bytes.value_or(0)) return;
  readings.memory_total_bytes = shared.memory_total_bytes;
  readings.memory_used_bytes = shared.memory_used_bytes;
  readings.unified_memory = true;
}

bool Card::is_divided() const {
  const auto mode = text_of(folder_ / "current_compute_partition");
  return !mode.empty() && mode != "SPX";
}

void Card::read_basics(Readings& readings) const {
  readings.utilization_percent = read_number(folder_ / "gpu_busy_percent");
  readings.temperature_celsius = sensor("temp edge", "input", 1000);
  if (!readings.temperature_celsius) readings.temperature_celsius = sensor("temp junction", "input", 1000);
  readings.power_mw = power("power1_average");
  if (!readings.power_mw) readings.power_mw = power("power1_input");
  readings.power_limit_mw = power("power1_cap");
}

void Card::read_details(Readings& readings) const {
  readings.memory_utilization_percent = read_number(folder_ / "mem_busy_percent");
  readings.memory_temperature_celsius = sensor("temp mem", "input", 1000);
  readings.clock_sm_mhz = sensor("freq sclk", "input", 1'000'000);
  readings.clock_memory_mhz = sensor("freq mclk", "input", 1'000'000);
  if (!hwmon_.empty()) {
    const auto pwm = read_number(hwmon_ / "pwm1");
    const auto most = read_number(hwmon_ / "pwm1_max").value_or(255);
    if (pwm) readings.fan_percent = percent(*pwm, most);
  }
  readings.pcie_generation = pcie_generation(text_of(port_ / "current_link_speed"));
  readings.pcie_width = read_number(port_ / "current_link_width");
  readings.pcie_replays = read_number(folder_ / "pcie_replay_count");
  read_errors(readings);
}

void Card::read_errors(Readings& readings) const {
  const auto add = [](std::optional<int64_t>& sum, const auto& counts, const char* name) {
    constexpr int64_t kMost = int64_t{1} << 48;
    const auto found = counts.find(name);
    if (found != counts.end() && found->second >= 0 && found->second <= kMost) sum = sum.value_or(0) + found->second;
  };
  for (const auto& file : entries_of(folder_ / "ras")) {
    if (!file.native().ends_with("_err_count")) continue;
    const auto counts = parse_properties(text_of(file));
    add(readings.ecc_uncorrected_volatile, counts, "ue");
    add(readings.ecc_corrected_volatile, counts, "ce");
  }
  const auto pages = read_text(folder_ / "ras" / "gpu_vram_bad_pages");  // "0x00000001 : 0x00001000 : R"
  if (!pages) return;
  const auto lines = lines_of(*pages);
  const auto count = [&](char flag) {
    return std::ranges::count_if(lines, [&](std::string_view line) { return line.ends_with(flag); });
  };
  readings.retired_pages = count('R');
  readings.retirement_pending = count('P') > 0;
}

std::optional<int64_t> pcie_generation(std::string_view speed) {
  constexpr std::array<std::string_view, 6> kSpeeds = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
  for (size_t i = 0; i < kSpeeds.size(); ++i) {
    const auto whole = kSpeeds[i].substr(0, kSpeeds[i].find(".0"));  // older kernels write "5 GT/s"
    if (speed.starts_with(fmt::format("{} ", kSpeeds[i])) || speed.starts_with(fmt::format("{} ", whole))) {
      return static_cast<int64_t>(i) + 1;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> highest_clock_mhz(std::string_view levels) {
  std::optional<int64_t> highest;
  for (const auto line : lines_of(levels)) {
    const auto begin = line.find(": ");
    const auto end = line.find("Mhz");
    if (begin == line.npos || end == line.npos || end < begin) continue;
    const auto clock = parse_number(line.substr(begin + 2, end - begin - 2));
    if (clock) highest = std::max(highest.value_or(0), *clock);
  }
  return highest;
}

std::optional<std::string> find_in_amdgpu_ids(std::string_view text, int64_t device_id, int64_t revision) {
  const auto beginning = fmt::format("{:04X},\t{:02X},", device_id, revision);
  for (const auto line : lines_of(text)) {
    if (!line.starts_with(beginning)) continue;
    const auto name = line.find_first_not_of(" \t", beginning.size());
    if (name != line.npos) return std::string(line.substr(name));
  }
  return std::nullopt;
}

std::optional<std::string> card_name(int64_t device_id, int64_t revision, const fs::path& sysroot) {
  // Compute nodes often have no libdrm, so this table has the names of their GPUs.
  constexpr std::array<std::pair<int64_t, const char*>, 10> kNames = {{{0x738c, "AMD Instinct MI100"},
                                                                       {0x7408, "AMD Instinct MI250X"},
                                                                       {0x740c, "AMD Instinct MI250X/MI250"},
                                                                       {0x740f, "AMD Instinct MI210"},
                                                                       {0x74a0, "AMD Instinct MI300A"},
                                                                       {0x74a1, "AMD Instinct MI300X"},
                                                                       {0x74a2, "AMD Instinct MI308X"},
                                                                       {0x74a5, "AMD Instinct MI325X"},
                                                                       {0x75a0, "AMD Instinct MI350X"},
                                                                       {0x75a3, "AMD Instinct MI355X"}}};
  for (const auto& [id, name] : kNames) {
    if (id == device_id) return name;
  }
  for (const auto* prefix : {"usr", "opt/amdgpu"}) {
    const auto list = read_text(sysroot / prefix / "share/libdrm/amdgpu.ids", 1 << 20);
    if (auto name = list ? find_in_amdgpu_ids(*list, device_id, revision) : std::nullopt) return name;
  }
  return std::nullopt;
}

}  // namespace yoke::device::amdgpu
