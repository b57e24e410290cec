// yoke/device/detail/numbers.h -- the numbers of a device: the key of each in JSON, in the order of the output, and the
// range outside of which it is implausible.
#pragma once

#include <cstdint>
#include <optional>

#include "yoke/device/device.h"

namespace yoke::device {

struct Range {
  int64_t least, most;
};
constexpr int64_t kMostBytes = int64_t{1} << 56, kMostCount = int64_t{1} << 60;
constexpr Range kPercent = {0, 100}, kFan = {0, 150},  // NVML: a fan may exceed 100 %
    kCelsius = {-100, 200}, kMilliwatts = {0, 100'000'000}, kLimit = {1, 100'000'000}, kMegahertz = {0, 100'000},
                kBytes = {0, kMostBytes}, kSize = {1, kMostBytes}, kCount = {0, kMostCount}, kLanes = {0, 64};

template <typename Struct>
struct Number {
  const char* key;
  std::optional<int64_t> Struct::*member;
  Range plausible = {INT64_MIN, INT64_MAX};
};

inline constexpr Number<Readings> kNumbers[] = {
    {"memory_total_bytes", &Readings::memory_total_bytes, kSize},
    {"memory_used_bytes", &Readings::memory_used_bytes, kBytes},
    {"memory_free_bytes", &Readings::memory_free_bytes, kBytes},
    {"memory_reserved_bytes", &Readings::memory_reserved_bytes, kBytes},
    {"utilization_percent", &Readings::utilization_percent, kPercent},
    {"memory_utilization_percent", &Readings::memory_utilization_percent, kPercent},
    {"encoder_utilization_percent", &Readings::encoder_utilization_percent, kPercent},
    {"decoder_utilization_percent", &Readings::decoder_utilization_percent, kPercent},
    {"temperature_celsius", &Readings::temperature_celsius, kCelsius},
    {"memory_temperature_celsius", &Readings::memory_temperature_celsius, kCelsius},
    {"fan_percent", &Readings::fan_percent, kFan},
    {"power_mw", &Readings::power_mw, kMilliwatts},
    {"power_limit_mw", &Readings::power_limit_mw, kLimit},
    {"energy_mj", &Readings::energy_mj, kCount},
    {"clock_sm_mhz", &Readings::clock_sm_mhz, kMegahertz},
    {"clock_memory_mhz", &Readings::clock_memory_mhz, kMegahertz},
    {"clock_graphics_mhz", &Readings::clock_graphics_mhz, kMegahertz},
    {"clock_video_mhz", &Readings::clock_video_mhz, kMegahertz},
    {"pcie_generation", &Readings::pcie_generation, kLanes},
    {"pcie_width", &Readings::pcie_width, kLanes},
    {"pcie_replays", &Readings::pcie_replays, kCount},
    {"pcie_rx_bytes_per_second", &Readings::pcie_rx_bytes_per_second, kBytes},
    {"pcie_tx_bytes_per_second", &Readings::pcie_tx_bytes_per_second, kBytes},
    {"ecc_corrected_volatile", &Readings::ecc_corrected_volatile, kCount},
    {"ecc_uncorrected_volatile", &Readings::ecc_uncorrected_volatile, kCount},
    {"ecc_corrected_aggregate", &Readings::ecc_corrected_aggregate, kCount},
    {"ecc_uncorrected_aggregate", &Readings::ecc_uncorrected_aggregate, kCount},
    {"retired_pages", &Readings::retired_pages, kCount},
    {"remapped_rows", &Readings::remapped_rows, kCount},
};
inline constexpr Number<Facts> kFactNumbers[] = {
    {"vendor_index", &Facts::vendor_index},
    {"minor_number", &Facts::minor_number},
    {"numa_node", &Facts::numa_node},
    {"gpu_instance", &Facts::gpu_instance},
    {"compute_instance", &Facts::compute_instance},
    {"power_limit_min_mw", &Facts::power_limit_min_mw, kLimit},
    {"power_limit_max_mw", &Facts::power_limit_max_mw, kLimit},
    {"power_limit_default_mw", &Facts::power_limit_default_mw, kLimit},
    {"clock_sm_max_mhz", &Facts::clock_sm_max_mhz, kMegahertz},
    {"clock_memory_max_mhz", &Facts::clock_memory_max_mhz, kMegahertz},
    {"pcie_generation_max", &Facts::pcie_generation_max, kLanes},
    {"pcie_width_max", &Facts::pcie_width_max, kLanes},
    {"temperature_slowdown_celsius", &Facts::temperature_slowdown_celsius, kCelsius},
    {"temperature_shutdown_celsius", &Facts::temperature_shutdown_celsius, kCelsius},
    {"num_packages", &Facts::num_packages},
    {"num_numa_nodes", &Facts::num_numa_nodes},
    {"num_cores", &Facts::num_cores},
    {"num_cpus", &Facts::num_cpus},
    {"num_allowed_cpus", &Facts::num_allowed_cpus},
};

}  // namespace yoke::device
