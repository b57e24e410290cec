// yoke/device/doctor/torch_install.h -- describes the installed libtorch from its files, without loading it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

struct TorchInstall {
  std::string path;          ///< The folder that holds lib/libtorch_cpu.so.
  std::string from;          ///< Where its path comes from: "YOKE_TORCH_DIR", "the active Python".
  std::string version;       ///< "2.11.0+cu130"; empty if its files do not contain it.
  std::string cuda_version;  ///< "13.0"; empty if it is not built for CUDA.
  std::string hip_version;   ///< "6.4.43482"
  bool has_cuda = false;     ///< Whether lib/libtorch_cuda.so exists.
  bool has_hip = false;
  std::string nccl_path;  ///< The libnccl.so.2 or librccl.so of this installation; empty if it has none.

  bool operator==(const TorchInstall&) const = default;
};

/// Returns nullopt if `folder` does not contain libtorch.
std::optional<TorchInstall> read_torch_install(const std::filesystem::path& folder, const std::string& from);

/// The value of `name` in a torch/version.py: 13.0 for "cuda: Optional[str] = '13.0'"; empty for None.
std::string value_in_version_py(std::string_view text, std::string_view name);

struct TorchPlaces {
  std::string torch_dir;    ///< YOKE_TORCH_DIR
  std::string torch_cmake;  ///< Torch_DIR: .../torch/share/cmake/Torch
  std::string deps;         ///< Where scripts/setup puts what it downloads.
  bool ask_python = true;   ///< Start `python3` and ask where its torch is, which takes time.
};

/// The installations that yoke's build would find, in its order, without repetitions.
std::vector<TorchInstall> find_torch_installs(const TorchPlaces& places);

}  // namespace yoke::device
