#include "yoke/device/doctor/torch_install.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

/// Returns the folder of the active Python's torch. Removes the current folder from Python's path first, because other
/// users may write to it.
std::string torch_of_python() {
  constexpr auto kCommand =
      "exec timeout 5 python3 -c 'import sys, importlib.util as u\n"
      "sys.path.pop(0)\n"
      "s = u.find_spec(\"torch\")\n"
      "print(s.submodule_search_locations[0] if s and s.submodule_search_locations else \"\")' </dev/null 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(kCommand, "re"), pclose);
  if (!pipe) return "";
  std::array<char, 4096> line = {};
  if (fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  std::string path = line.data();
  path.erase(path.find_last_not_of('\n') + 1);
  return path;
}

}  // namespace

std::string value_in_version_py(std::string_view text, std::string_view name) {
  for (auto line : lines_of(text)) {
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    const auto equals = line.find('=');
    if (equals == line.npos || (line[0] != ' ' && line[0] != ':' && line[0] != '=')) continue;
    const auto open = line.find_first_of("'\"", equals);
    if (open == line.npos) return "";
    const auto close = line.find(line[open], open + 1);
    return close == line.npos ? "" : std::string(line.substr(open + 1, close - open - 1));
  }
  return "";
}

std::optional<TorchInstall> read_torch_install(const fs::path& folder, const std::string& from) {
  const auto lib = folder / "lib";
  if (!is_there(lib / "libtorch_cpu.so")) return std::nullopt;
  TorchInstall torch{.path = folder.string(), .from = from};
  torch.has_cuda = is_there(lib / "libtorch_cuda.so");
  torch.has_hip = is_there(lib / "libtorch_hip.so");
  const auto version_py = read_text(folder / "version.py").value_or("");
  torch.version = value_in_version_py(version_py, "__version__");
  torch.cuda_version = value_in_version_py(version_py, "cuda");
  torch.hip_version = value_in_version_py(version_py, "hip");
  if (torch.version.empty()) torch.version = read_text(folder / "build-version").value_or("");  // in libtorch archives
  for (const auto& nccl : {folder / "../nvidia/nccl/lib/libnccl.so.2", lib / "libnccl.so.2", lib / "librccl.so"}) {
    if (torch.nccl_path.empty() && is_there(nccl)) torch.nccl_path = nccl.lexically_normal().string();
  }
  return torch;
}

std::vector<TorchInstall> find_torch_installs(const TorchPlaces& places) {
  std::vector<TorchInstall> found;
  const auto look = [&](const fs::path& folder, const std::string& from) {
    if (folder.empty()) return;
    std::error_code error;
    const auto real = fs::canonical(folder, error);
    if (error) return;
    const auto is_known = [&](const TorchInstall& other) { return other.path == real; };
    if (std::ranges::any_of(found, is_known)) return;
    if (auto torch = read_torch_install(real, from)) found.push_back(*std::move(torch));
  };
  look(places.torch_dir, variable::kTorchDir);
  if (!places.torch_cmake.empty()) look(fs::path(places.torch_cmake) / "../../..", "Torch_DIR");
  if (places.ask_python) look(torch_of_python(), "the active Python");
  if (!places.deps.empty()) look(fs::path(places.deps) / "python/torch", "scripts/setup");
  return found;
}

}  // namespace yoke::device
