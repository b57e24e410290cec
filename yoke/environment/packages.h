// yoke/environment/packages.h -- which build of PyTorch or TensorFlow fits the drivers of a machine. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  std::optional<Version> cuda;  ///< The latest CUDA that NVIDIA's driver supports; nullopt: no such driver.
  /// The lowest and the highest compute capability of the NVIDIA devices, if known.
  std::optional<Version> lowest_capability, highest_capability;
  bool has_amd = false;
  std::optional<Version> rocm;  ///< The installed ROCm; nullopt if it is not known.
};

/// `rocm_version` is the text of /opt/rocm/.info/version, or empty.
Drivers drivers_of(const device::Snapshot& snapshot, std::string_view rocm_version);

enum class Framework { kTorch, kTensorflow };
std::string_view name(Framework framework);

/// Packages of pip, and the index that has them.
struct Packages {
  std::vector<std::string> requirements;  ///< "torch<2.12"
  std::string index_url;                  ///< Empty: pip's own index.
  std::string reason;                     ///< A sentence that says why.
};

/// Chooses the packages. The tables, with their sources, are in packages.cpp.
Packages packages_for(Framework framework, const Drivers& drivers);

/// Replaces the requirement of torch by that of a requirements file, and adds its torchvision and torchaudio, which
/// must come from the same index. `text` is the content of the file.
void take_versions(Packages& packages, std::string_view text);

}  // namespace yoke::environment
