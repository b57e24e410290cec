// yoke/view/labels.h -- names and numbers of a device as short texts. Pure.
//
// An unknown value is kUnknown, so that a column of a table is never empty by accident.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::view {

inline constexpr const char* kUnknown = "-";

/// "NVIDIA A100-SXM4-80GB"; "MIG 3g.40gb" for an instance, which is shown below its GPU.
std::string full_name(const device::Device& device);

/// The part of the name that tells devices apart: "A100-SXM4-80GB"; "3g.40gb" for an instance.
std::string short_name(const device::Device& device);

/// "97%"
std::string percent_text(const std::optional<int64_t>& percent);

/// The power in whole watts.
int64_t to_watts(int64_t milliwatts);

double to_gib(int64_t bytes);

/// Users of the device and of its instances, each once, ordered by memory; "?" stands for processes without a known
/// owner.
std::vector<std::string> users_of(const device::Device& device);

/// How long the process has run; nullopt if its start is not known.
std::optional<std::chrono::duration<double>> age_of(const device::ProcessInfo& info,
                                                    std::chrono::system_clock::time_point now);

/// The reason why the snapshot does not contain a GPU.
struct MissingGpu {
  bool is_certain = true;            ///< True if all drivers have answered, so the machine does not have a GPU.
  std::vector<std::string> reasons;  ///< The reasons that the backends reported, unchanged.

  std::string text() const;  ///< "no GPU: libnvidia-ml.so.1 is not installed"
};

/// Returns nullopt if the snapshot has a GPU.
std::optional<MissingGpu> find_missing_gpu(const device::Snapshot& snapshot);

}  // namespace yoke::view
