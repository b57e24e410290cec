#include "yoke/environment/packages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "yoke/base/text.h"
#include "yoke/device/device.h"

namespace yoke::environment {
namespace {

constexpr std::string_view kTorchIndex = "https://download.pytorch.org/whl/";

/// A build of PyTorch for CUDA, and the drivers and devices with which it works.
struct CudaBuild {
  std::string_view index, requirement;
  Version driver;             ///< The driver must support at least this CUDA.
  Version lowest_capability;  ///< The build has code for devices from here
  Version capability_end;     ///< up to here, without this one.
};

constexpr Version kAny = {99, 0};

// The first build that fits is taken.
//
// Builds and their devices: "Release Compatibility Matrix" and "PyTorch CUDA Support Matrix" in PyTorch's RELEASE.md
// (release 2.14 has CUDA 12.6, 13.0, 13.2; CUDA 12.8 ended with 2.11, and CUDA 11.8 with 2.7).
// Drivers: "Minor Version Compatibility" in NVIDIA's "CUDA Compatibility". A program for CUDA 12.6 runs with every
// driver that supports any CUDA 12, as PyTorch contains code for the devices and compiles none.
constexpr auto kCudaBuilds = std::to_array<CudaBuild>({
    {"cu130", "torch", {13, 0}, {7, 5}, kAny},         // CUDA 13 has no code for Maxwell, Pascal and Volta
    {"cu128", "torch<2.12", {12, 8}, {10, 0}, kAny},   // Blackwell needs CUDA 12.8
    {"cu126", "torch", {12, 0}, {5, 0}, {10, 0}},      // also with newer drivers, for Maxwell, Pascal and Volta
    {"cu118", "torch<2.8", {11, 0}, {3, 5}, {10, 0}},  // drivers from 450.80 on
});

/// A build for ROCm. Source: the same matrix, "Stable ROCm".
struct RocmBuild {
  Version version;
  std::string_view index, requirement;
};
constexpr auto kRocmBuilds = std::to_array<RocmBuild>({
    {{7, 14}, "rocm7.14", "torch"},
    {{7, 2}, "rocm7.2", "torch<2.14"},
    {{7, 1}, "rocm7.1", "torch<2.12"},
    {{6, 4}, "rocm6.4", "torch<2.10"},
    {{6, 3}, "rocm6.3", "torch<2.8"},
    {{6, 2}, "rocm6.2.4", "torch<2.7"},
});

std::string text_of(const Version& version) { return fmt::format("{}.{}", version.first, version.second); }

Packages torch_of(std::string_view index, std::string_view requirement, std::string reason) {
  return {{std::string(requirement)}, std::string(kTorchIndex) + std::string(index), std::move(reason)};
}

const CudaBuild* find_cuda_build(const Drivers& drivers) {
  const auto lowest = drivers.lowest_capability.value_or(Version{8, 0});
  const auto highest = drivers.highest_capability.value_or(lowest);
  const auto fits = [&](const CudaBuild& build) {
    return *drivers.cuda >= build.driver && lowest >= build.lowest_capability && highest < build.capability_end;
  };
  const auto found = std::find_if(kCudaBuilds.begin(), kCudaBuilds.end(), fits);
  return found == kCudaBuilds.end() ? nullptr : &*found;
}

Packages torch_for_rocm(const Drivers& drivers) {
  const auto fits = [&](const RocmBuild& build) { return !drivers.rocm || build.version <= *drivers.rocm; };
  const auto* const build = std::find_if(kRocmBuilds.begin(), kRocmBuilds.end(), fits);
  if (build != kRocmBuilds.end()) {
    return torch_of(build->index, build->requirement,
                    drivers.rocm ? fmt::format("ROCm {} is installed", text_of(*drivers.rocm))
                                 : std::string("this machine has an AMD GPU, and its version of ROCm is not known"));
  }
  return torch_of("cpu", "torch",
                  fmt::format("ROCm {} is older than all that PyTorch supports, so this build computes on the CPU",
                              text_of(*drivers.rocm)));
}

Packages torch_for(const Drivers& drivers) {
  if (drivers.cuda) {
    if (const auto* const build = find_cuda_build(drivers)) {
      return torch_of(build->index, build->requirement,
                      fmt::format("the driver supports CUDA {}{}", text_of(*drivers.cuda),
                                  drivers.lowest_capability
                                      ? ", and the device compute capability " + text_of(*drivers.lowest_capability)
                                      : ""));
    }
    return torch_of("cpu", "torch",
                    fmt::format("no build fits a driver for CUDA {}{}, so this build computes on the CPU; a newer "
                                "driver would help",
                                text_of(*drivers.cuda),
                                drivers.highest_capability
                                    ? " and devices of compute capability " + text_of(*drivers.highest_capability)
                                    : ""));
  }
  if (drivers.has_amd) return torch_for_rocm(drivers);
  return torch_of("cpu", "torch", "this machine has no GPU with a driver");
}

// Source: "Install TensorFlow with pip" (tensorflow.org/install/pip): the extra and-cuda brings the CUDA 12 libraries
// and needs a driver from 525.60 on; "tested build configurations" (install/source): 2.14 is the last one for CUDA 11.
// AMD publishes TensorFlow outside PyPI (repo.radeon.com), so there is no index to name here.
Packages tensorflow_for(const Drivers& drivers) {
  if (drivers.cuda && *drivers.cuda >= Version{12, 0}) {
    return {{"tensorflow[and-cuda]"}, "", fmt::format("the driver supports CUDA {}", text_of(*drivers.cuda))};
  }
  if (drivers.cuda && *drivers.cuda >= Version{11, 8}) {
    return {{"tensorflow[and-cuda]==2.14.*"}, "", fmt::format("the driver supports CUDA {}", text_of(*drivers.cuda))};
  }
  if (drivers.has_amd) {
    return {
        {"tensorflow-cpu"},
        "",
        "AMD publishes TensorFlow for ROCm at repo.radeon.com, which has no index for pip; this one computes on the "
        "CPU"};
  }
  return {{"tensorflow-cpu"}, "", "this machine has no GPU with a driver that TensorFlow supports"};
}

/// The name of the package that a line of a requirements file begins with.
std::string_view package_of(std::string_view line) { return line.substr(0, line.find_first_of(" \t<>=!~;[#@")); }

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  const auto* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.first);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.second);
  return minor.ec == std::errc() ? std::optional(version) : std::nullopt;
}

Drivers drivers_of(const device::Snapshot& snapshot, std::string_view rocm_version) {
  Drivers drivers;
  for (const auto& device : snapshot.devices) {
    drivers.has_amd = drivers.has_amd || device.vendor == device::Vendor::kAmd;
    if (device.vendor != device::Vendor::kNvidia) continue;
    const auto capability = parse_version(device.facts.compute_capability);
    if (!capability) continue;
    drivers.lowest_capability = std::min(drivers.lowest_capability.value_or(*capability), *capability);
    drivers.highest_capability = std::max(drivers.highest_capability.value_or(*capability), *capability);
  }
  const bool has_nvidia = std::any_of(snapshot.devices.begin(), snapshot.devices.end(),
                                      [](const auto& device) { return device.vendor == device::Vendor::kNvidia; });
  for (const auto& report : snapshot.backends) {
    if (report.backend == "nvml" && report.is_available && has_nvidia) drivers.cuda = parse_version(report.api_version);
  }
  if (drivers.has_amd) drivers.rocm = parse_version(rocm_version);
  return drivers;
}

std::string_view name(Framework framework) { return framework == Framework::kTorch ? "torch" : "tensorflow"; }

Packages packages_for(Framework framework, const Drivers& drivers) {
  return framework == Framework::kTorch ? torch_for(drivers) : tensorflow_for(drivers);
}

void take_versions(Packages& packages, std::string_view text) {
  if (packages.index_url.empty()) return;
  for (const auto line : lines_of(text)) {
    auto requirement = line.substr(0, std::min(line.find(" #"), line.size()));
    while (requirement.ends_with(' ')) requirement.remove_suffix(1);
    const auto package = package_of(requirement);
    if (package == "torch") packages.requirements.front() = requirement;
    if (package == "torchvision" || package == "torchaudio") packages.requirements.emplace_back(requirement);
  }
}

}  // namespace yoke::environment
