// yoke/view/labels.h -- formats names and numbers of a device as short texts. Pure.
//
// An unknown value becomes kUnknown, so that no cell of a table is empty by accident.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::view {

inline constexpr const char* kUnknown = "-";

/// Returns "NVIDIA A100-SXM4-80GB", or "MIG 3g.40gb" for an instance, which is shown below its GPU.
std::string full_name(const device::Device& device);

/// Returns the part of the name that distinguishes devices: "A100-SXM4-80GB", or "3g.40gb" for an instance.
std::string short_name(const device::Device& device);

/// Returns text such as "97%".
std::string percent_text(const std::optional<int64_t>& percent);

/// Returns the power in whole watts.
int64_t to_watts(int64_t milliwatts);

double to_gib(int64_t bytes);

/// Returns the users of the device and of its instances, each once, ordered by memory. "?" stands for processes whose
/// owner is not known.
std::vector<std::string> users_of(const device::Device& device);

/// Returns how long the process has run, or nullopt if its start is not known.
std::optional<std::chrono::duration<double>> age_of(const device::ProcessInfo& info,
                                                    std::chrono::system_clock::time_point now);

/// Why the snapshot contains no GPU.
struct MissingGpu {
  bool is_certain = true;            ///< True if all drivers have answered, so that the machine has no GPU.
  std::vector<std::string> reasons;  ///< The reasons as the backends reported them.

  std::string text() const;  ///< Returns text such as "no GPU: libnvidia-ml.so.1 is not installed".
};

/// Returns nullopt if the snapshot has a GPU.
std::optional<MissingGpu> find_missing_gpu(const device::Snapshot& snapshot);

}  // namespace yoke::view
