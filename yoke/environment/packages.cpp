#include "yoke/environment/packages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/device/device.h"

namespace yoke::environment {
namespace {

constexpr std::string_view kTorchIndex = "https://download.pytorch.org/whl/";

constexpr int kStillBuilt = 99;

/// A build of PyTorch for CUDA: the versions 2.FIRST to 2.LAST that have it, and the drivers and devices for it.
struct CudaBuild {
  std::string_view name;
  int first, last;
  Version driver;                         ///< The driver must support at least this CUDA.
  std::span<const Version> capabilities;  ///< The build has code for these.
  bool has_ptx = false;                   ///< The driver compiles the last one for later devices.
};

constexpr Version kOf118[] = {{3, 7}, {5, 0}, {6, 0}, {7, 0}, {7, 5}, {8, 0}, {8, 6}, {9, 0}};
constexpr Version kMaxwellToHopper[] = {{5, 0}, {6, 0}, {7, 0}, {7, 5}, {8, 0}, {8, 6}, {9, 0}};
constexpr Version kVoltaToBlackwell[] = {{7, 0}, {7, 5}, {8, 0}, {8, 6}, {9, 0}, {10, 0}, {12, 0}};
constexpr Version kTuringToBlackwell[] = {{7, 5}, {8, 0}, {8, 6}, {9, 0}, {10, 0}, {12, 0}};
constexpr Version kOf130[] = {{7, 5}, {8, 0}, {8, 6}, {9, 0}, {10, 0}, {11, 0}, {12, 0}};  // 11.0: arm64 alone

// The first build that fits is taken, so later versions of PyTorch come first.
//
// Capabilities: TORCH_CUDA_ARCH_LIST in PyTorch's .ci/manywheel/build_cuda.sh (before 2.6 manywheel/build_cuda.sh of
// pytorch/builder), and since 2.9 "PyTorch CUDA Support Matrix" in its RELEASE.md, of each release. cu128 had Volta
// from 2.8 (pull request 157558; CUDA_ARCHES_SUPPORTED in torch/cuda/__init__.py of v2.8.0) to 2.10 (issue 172352).
// Versions: "Release Compatibility Matrix" in RELEASE.md; 2.14 is the last one with cu126 (issue 190385). cu129 (2.8)
// has no device that cu128 lacks, nor has cu132 (from 2.12 on) one that cu130 lacks.
// Drivers: "Minor Version Compatibility" in NVIDIA's "CUDA Compatibility". A program for CUDA 12.6 runs with every
// driver that supports any CUDA 12, as PyTorch contains code for the devices and compiles none.
constexpr auto kCudaBuilds = std::to_array<CudaBuild>({
    {"cu130", 9, kStillBuilt, {13, 0}, kOf130, true},
    {"cu126", 6, 14, {12, 0}, kMaxwellToHopper},
    {"cu128", 7, 11, {12, 8}, kTuringToBlackwell},
    {"cu128", 8, 10, {12, 8}, kVoltaToBlackwell},
    {"cu124", 4, 6, {12, 0}, kMaxwellToHopper},
    {"cu121", 1, 5, {12, 0}, kMaxwellToHopper},
    {"cu118", 0, 7, {11, 0}, kOf118},  // drivers from 450.80 on
});

/// A build for ROCm. Source: the same matrix, "Stable ROCm".
struct RocmBuild {
  Version version;
  std::string_view name;
  int first, last;
};
constexpr auto kRocmBuilds = std::to_array<RocmBuild>({
    {{7, 14}, "rocm7.14", 14, kStillBuilt},
    {{7, 2}, "rocm7.2", 11, 13},
    {{7, 1}, "rocm7.1", 10, 11},
    {{6, 4}, "rocm6.4", 8, 9},
    {{6, 3}, "rocm6.3", 7, 7},
    {{6, 2}, "rocm6.2.4", 6, 6},
    {{6, 2}, "rocm6.2", 5, 5},
    {{6, 1}, "rocm6.1", 4, 4},
    {{6, 0}, "rocm6.0", 3, 3},
    {{5, 7}, "rocm5.7", 2, 2},
});

constexpr Version kLatestDriver = {99, 0};

using Minors = std::optional<std::vector<int>>;

std::string text_of(const Version& version) { return fmt::format("{}.{}", version.first, version.second); }

Packages torch_of(std::string_view build, std::string specifier, std::string reason) {
  return {.requirements = {{"torch", std::move(specifier)}},
          .index_url = std::string(kTorchIndex) + std::string(build),
          .build = std::string(build),
          .reason = std::move(reason)};
}

/// ">=2.6,<2.15"
template <typename Build>
std::string versions_of(const Build& build) {
  return fmt::format(">=2.{}{}", build.first, build.last == kStillBuilt ? "" : fmt::format(",<2.{}", build.last + 1));
}

template <typename Build>
bool is_allowed(const Build& build, const Minors& minors) {
  return !minors ||
         std::ranges::any_of(*minors, [&](int minor) { return minor >= build.first && minor <= build.last; });
}

/// Code for 8.6 runs on 8.9, and not on 9.0: "Binary Compatibility" in NVIDIA's CUDA C++ Programming Guide.
bool has_code(const CudaBuild& build, const Version& capability) {
  if (build.has_ptx && capability > build.capabilities.back()) return true;
  return std::ranges::any_of(build.capabilities, [&](const Version& one) {
    return one.first == capability.first && one.second <= capability.second;
  });
}

bool has_code(const CudaBuild& build, std::span<const Drivers::Gpu> gpus) {
  return std::ranges::all_of(gpus, [&](const auto& gpu) { return has_code(build, gpu.capability); });
}

const CudaBuild* find_cuda_build(const Version& driver, std::span<const Drivers::Gpu> gpus, const Minors& minors) {
  const auto fits = [&](const CudaBuild& build) {
    return driver >= build.driver && is_allowed(build, minors) && has_code(build, gpus);
  };
  const auto found = std::ranges::find_if(kCudaBuilds, fits);
  return found == kCudaBuilds.end() ? nullptr : &*found;
}

std::string list_of(std::span<const Drivers::Gpu> gpus) {
  std::vector<std::string> names;
  for (const auto& gpu : gpus) names.push_back(fmt::format("{} with {}", gpu.name, text_of(gpu.capability)));
  return fmt::format("{}", fmt::join(names, ", "));
}

constexpr const char* kOtherChoices =
    "or choose an index yourself (--index-url https://download.pytorch.org/whl/NAME), or the build for the CPU "
    "(--vendor cpu)";

[[noreturn]] void refuse_versions(const std::string& machine) {
  throw Error(
      ErrorCode::kInvalidArgument,
      "the requirements ask for a version of torch, torchvision or torchaudio that has no build for {}; ask for "
      "another version, {}",
      machine, kOtherChoices);
}

/// Says why no build works on all devices, and what would.
[[noreturn]] void refuse_gpus(const Drivers& drivers) {
  const auto is_too_old = [&](const Drivers::Gpu& gpu) { return !find_cuda_build(kLatestDriver, {&gpu, 1}, {}); };
  const auto old = std::ranges::find_if(drivers.gpus, is_too_old);
  if (old != drivers.gpus.end()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "no build of PyTorch 2 has code for {} (compute capability {}); choose the build for the CPU (--vendor "
                "cpu), or an index yourself (--index-url)",
                old->name, text_of(old->capability));
  }
  std::optional<Version> driver;
  for (const auto& build : kCudaBuilds) {
    if (has_code(build, drivers.gpus)) driver = std::min(driver.value_or(build.driver), build.driver);
  }
  if (driver) {
    throw Error(ErrorCode::kFailedPrecondition,
                "no build of PyTorch works with a driver for CUDA {}{}; install a driver for CUDA {} or later, {}",
                text_of(*drivers.cuda), drivers.gpus.empty() ? "" : " and " + list_of(drivers.gpus), text_of(*driver),
                kOtherChoices);
  }
  std::vector<std::string> alone;
  for (const auto& gpu : drivers.gpus) {
    const auto* const build = find_cuda_build(*drivers.cuda, {&gpu, 1}, {});
    alone.push_back(fmt::format("{} ({}) {}", gpu.name, text_of(gpu.capability),
                                build == nullptr ? "has none with this driver" : fmt::format("has {}", build->name)));
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "no build of PyTorch has code for all GPUs of this machine: {}; choose one of them (--index-url "
              "https://download.pytorch.org/whl/NAME), and hide the other GPUs by CUDA_VISIBLE_DEVICES",
              fmt::join(alone, ", "));
}

Packages torch_for_cuda(const Drivers& drivers, const Minors& minors) {
  const std::vector<Drivers::Gpu> usual = {{"", {8, 0}}};  // a driver that does not tell capabilities
  const auto& gpus = drivers.gpus.empty() ? usual : drivers.gpus;
  if (const auto* const build = find_cuda_build(*drivers.cuda, gpus, minors)) {
    return torch_of(build->name, versions_of(*build),
                    fmt::format("the driver supports CUDA {}{}", text_of(*drivers.cuda),
                                drivers.gpus.empty() ? "" : ", compute capability: " + list_of(drivers.gpus)));
  }
  if (find_cuda_build(*drivers.cuda, gpus, {}) != nullptr) {
    refuse_versions(fmt::format("a driver for CUDA {}{}", text_of(*drivers.cuda),
                                drivers.gpus.empty() ? "" : " and compute capability: " + list_of(drivers.gpus)));
  }
  refuse_gpus(drivers);
}

Packages torch_for_rocm(const Drivers& drivers, const Minors& minors) {
  const auto works = [&](const RocmBuild& build) { return !drivers.rocm || build.version <= *drivers.rocm; };
  const auto fits = [&](const RocmBuild& build) { return works(build) && is_allowed(build, minors); };
  const auto* const build = std::ranges::find_if(kRocmBuilds, fits);
  if (build != kRocmBuilds.end()) {
    return torch_of(build->name, versions_of(*build),
                    drivers.rocm ? fmt::format("ROCm {} is installed", text_of(*drivers.rocm))
                                 : std::string("this machine has an AMD GPU, and its version of ROCm is not known"));
  }
  if (std::ranges::any_of(kRocmBuilds, works)) {
    refuse_versions(drivers.rocm ? "ROCm " + text_of(*drivers.rocm) : "ROCm");
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "ROCm {} is older than all that PyTorch supports; install a later one, {}", text_of(*drivers.rocm),
              kOtherChoices);
}

Packages torch_for(const Drivers& drivers, const Minors& minors) {
  if (drivers.cuda) return torch_for_cuda(drivers, minors);
  if (drivers.has_amd) return torch_for_rocm(drivers, minors);
  return torch_of("cpu", "", "this machine has no GPU with a driver");
}

// Source: "Install TensorFlow with pip" (tensorflow.org/install/pip): the extra and-cuda brings the CUDA 12 libraries
// and needs a driver from 525.60 on; "tested build configurations" (install/source): 2.14 is the last one for CUDA 11.
// AMD publishes TensorFlow outside PyPI (repo.radeon.com), so there is no index to name here.
Packages tensorflow_for(const Drivers& drivers) {
  if (drivers.cuda && *drivers.cuda >= Version{11, 8}) {
    return {.requirements = {{"tensorflow[and-cuda]", *drivers.cuda >= Version{12, 0} ? "" : "==2.14.*"}},
            .reason = fmt::format("the driver supports CUDA {}", text_of(*drivers.cuda))};
  }
  if (drivers.cuda) {
    throw Error(ErrorCode::kFailedPrecondition,
                "TensorFlow needs a driver for CUDA 11.8 or later, and this one supports CUDA {}; install a later one, "
                "or choose the build for the CPU (--vendor cpu)",
                text_of(*drivers.cuda));
  }
  if (drivers.has_amd) {
    throw Error(ErrorCode::kFailedPrecondition,
                "AMD publishes TensorFlow for ROCm at repo.radeon.com, which has no index for pip; name its wheel in a "
                "file for -r, or choose the build for the CPU (--vendor cpu)");
  }
  return {.requirements = {{"tensorflow-cpu", ""}}, .reason = "this machine has no GPU with a driver"};
}

/// The name of the package without extras.
std::string_view base_of(std::string_view package) { return package.substr(0, package.find('[')); }

/// "cu126" of "https://download.pytorch.org/whl/cu126/", and of a mirror that keeps the names; empty for others.
std::string build_of_index(std::string_view url) {
  while (url.ends_with('/')) url.remove_suffix(1);
  static const std::regex kBuild("cpu|xpu|cu[0-9]+|rocm[0-9.]+");
  const std::string last(base_name(url));
  return std::regex_match(last, kBuild) ? last : "";
}

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
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::kUnavailable,
                "{}, so no build can be chosen; `yoke doctor` says more, --deadline waits longer, and --vendor cpu "
                "chooses the build for the CPU",
                why);
  };
  Drivers drivers;
  for (const auto& report : snapshot.backends) {
    if (!report.has_answered || report.is_broken) {
      refuse(report.reason.empty() ? fmt::format("the driver ({}) does not answer", report.backend) : report.reason);
    }
  }
  bool has_nvidia = false, has_answer = false;
  std::string silent;
  for (const auto& device : snapshot.devices) {
    drivers.has_amd = drivers.has_amd || device.vendor == device::Vendor::kAmd;
    if (device.vendor != device::Vendor::kNvidia) continue;
    has_nvidia = true;
    const auto id = fmt::format("gpu {}", device.index);
    const auto capability = parse_version(device.facts.compute_capability);
    if (capability) {
      const auto& model = device.facts.name;
      drivers.gpus.push_back({model.empty() ? id : fmt::format("{} ({})", id, model), *capability});
    }
    has_answer = has_answer || capability || device::is_answering(device);
    if (!has_answer && silent.empty()) {
      silent = fmt::format("{}: {}{}{}", id, name(device.state), device.reason.empty() ? "" : ", ", device.reason);
    }
  }
  if (has_nvidia && !has_answer) refuse(silent);
  for (const auto& report : snapshot.backends) {
    if (report.backend == "nvml" && report.is_available && has_nvidia) drivers.cuda = parse_version(report.api_version);
  }
  if (has_nvidia && !drivers.cuda) refuse("NVIDIA's driver does not say which CUDA it supports");
  if (drivers.has_amd) drivers.rocm = parse_version(rocm_version);
  return drivers;
}

std::string_view name(Framework framework) { return framework == Framework::kTorch ? "torch" : "tensorflow"; }

Packages packages_for(Framework framework, const Drivers& drivers, const std::optional<std::vector<int>>& minors) {
  return framework == Framework::kTorch ? torch_for(drivers, minors) : tensorflow_for(drivers);
}

Packages torch_from(std::string index_url) {
  auto build = build_of_index(index_url);
  return {.requirements = {{"torch", ""}},
          .index_url = std::move(index_url),
          .build = std::move(build),
          .reason = "you have chosen this index"};
}

void add_versions(Packages& packages, const PipFacts& facts) {
  auto& requirements = packages.requirements;
  const auto find = [&](std::string_view package) {
    return std::ranges::find_if(requirements, [&](const auto& one) { return base_of(one.package) == package; });
  };
  for (const auto& line : facts.named) {
    const bool comes_along = line.package == "torchvision" || line.package == "torchaudio";
    if (comes_along && !line.is_constraint && line.decided.empty() && find("torch") != requirements.end() &&
        find(line.package) == requirements.end()) {
      requirements.push_back({line.package, ""});
    }
    const auto found = find(line.package);
    if (found == requirements.end() || line.specifier.empty()) continue;
    found->specifier += (found->specifier.empty() ? "" : ",") + line.specifier;
  }
}

void check_build(const Packages& packages, const std::map<std::string, std::string>& versions,
                 const std::string& folder) {
  for (const auto& requirement : packages.requirements) {
    const auto found = versions.find(std::string(base_of(requirement.package)));
    if (found == versions.end()) {
      throw Error(ErrorCode::kFailedPrecondition, "{} has no {}, although pip ended without an error", folder,
                  requirement.package);
    }
    const auto& [package, version] = *found;
    const auto plus = version.find('+');
    const auto build = plus == version.npos ? "" : version.substr(plus + 1);
    // Builds for the CPU of arm64 have no name.
    if (packages.build.empty() || build.starts_with(packages.build) || (build.empty() && packages.build == "cpu")) {
      continue;
    }
    throw Error(ErrorCode::kFailedPrecondition,
                "{} has {} {}, and the build +{} was chosen for this machine ({}); `yoke env remove` the environment, "
                "and look for settings of pip that name another source (`pip config list`)",
                folder, package, version, packages.build, packages.reason);
  }
}

}  // namespace yoke::environment
