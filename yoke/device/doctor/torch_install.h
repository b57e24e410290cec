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
  std::string from;          ///< The source of `path`: "YOKE_TORCH_DIR", "the active Python".
  std::string version;       ///< "2.11.0+cu130"; empty if the files do not contain it.
  std::string cuda_version;  ///< "13.0"; empty if this libtorch is not built for CUDA.
  std::string hip_version;   ///< "6.4.43482"
  bool has_cuda = false;     ///< Whether lib/libtorch_cuda.so exists.
  bool has_hip = false;
  std::string nccl_path;  ///< The libnccl.so.2 or librccl.so of this installation; empty if there is none.

  bool operator==(const TorchInstall&) const = default;
};

/// Returns nullopt if `folder` does not contain libtorch.
std::optional<TorchInstall> read_torch_install(const std::filesystem::path& folder, const std::string& from);

/// Returns the value of `name` in a torch/version.py: 13.0 for "cuda: Optional[str] = '13.0'"; empty for None.
std::string value_in_version_py(std::string_view text, std::string_view name);

struct TorchPlaces {
  std::string torch_dir;    ///< YOKE_TORCH_DIR
  std::string torch_cmake;  ///< Torch_DIR: .../torch/share/cmake/Torch
  std::string deps;         ///< The folder to which scripts/setup downloads.
  bool ask_python = true;   ///< Whether to start `python3` to find its torch, which takes time.
};

/// Returns the installations that yoke's build would find, in the same order and without duplicates.
std::vector<TorchInstall> find_torch_installs(const TorchPlaces& places);

}  // namespace yoke::device
