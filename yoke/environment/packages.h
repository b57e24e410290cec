// yoke/environment/packages.h -- which build of PyTorch or TensorFlow fits the drivers of a machine. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/environment/pip.h"

namespace yoke::device {
struct Snapshot;
}

namespace yoke::environment {

/// A version such as 12.8, which compares as a pair of numbers: 7.14 is later than 7.2.
using Version = std::pair<int, int>;
/// Parses "12.8" and "7.2.1". Returns nullopt for text that does not begin with a version.
std::optional<Version> parse_version(std::string_view text);

/// What decides which build fits.
struct Drivers {
  struct Gpu {
    std::string name;  ///< "gpu 0 (NVIDIA A100)"
    Version capability;
  };
  std::optional<Version> cuda;  ///< The latest CUDA that NVIDIA's driver supports; nullopt: no such driver.
  std::vector<Gpu> gpus;        ///< NVIDIA's, as far as their compute capability is known.
  bool has_amd = false;
  std::optional<Version> rocm;  ///< The installed ROCm; nullopt if it is not known.
};

/// `rocm_version` is the text of /opt/rocm/.info/version, or empty.
/// Errors  kUnavailable: a driver is there and does not work, does not answer, or opens none of its devices for this
///         user. Such a machine has GPUs, so a build for the CPU would be wrong.
Drivers drivers_of(const device::Snapshot& snapshot, std::string_view rocm_version);

enum class Framework { kTorch, kTensorflow };
std::string_view name(Framework framework);

struct Requirement {
  std::string package;    ///< "torch", "tensorflow[and-cuda]"
  std::string specifier;  ///< ">=2.9,==2.9.1"; empty: the latest version.

  std::string text() const { return package + specifier; }
  bool operator==(const Requirement&) const = default;
};

/// Packages of pip, and the index that has them.
struct Packages {
  std::vector<Requirement> requirements;
  std::string index_url;  ///< Empty: pip's own index.
  std::string build;      ///< How the versions in this index end: "cu126" in 2.14.0+cu126; empty: not known.
  std::string reason;     ///< A sentence that says why.
};

/// Chooses the packages. The tables, with their sources, are in packages.cpp.
/// Errors  kFailedPrecondition: this machine has GPUs, and no build works on all of them; the message names them.
/// kInvalidArgument: `minors` (see PipFacts) have no such build.
Packages packages_for(Framework framework, const Drivers& drivers, const std::optional<std::vector<int>>& minors = {});

/// The packages of PyTorch in an index that the user has chosen.
Packages torch_from(std::string index_url);

/// Adds the versions that the user's files name. torchvision and torchaudio of the files come from the same index.
void add_versions(Packages& packages, const PipFacts& facts);

/// Errors  kFailedPrecondition: of `packages` one is missing in `versions`, or a different build of it is there.
void check_build(const Packages& packages, const std::map<std::string, std::string>& versions,
                 const std::string& folder);

}  // namespace yoke::environment
