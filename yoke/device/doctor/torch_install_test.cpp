#include "yoke/device/doctor/torch_install.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("yoke-torch-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }

  fs::path write(const std::string& file, const std::string& text = "") const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return path_ / file;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

constexpr auto kVersionPy =
    "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
    "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'abc'\n"
    "hip: Optional[str] = None\n";

TEST(TorchInstall, ReadsVersionPy) {
  EXPECT_EQ(value_in_version_py(kVersionPy, "__version__"), "2.11.0+cu130");
  EXPECT_EQ(value_in_version_py(kVersionPy, "cuda"), "13.0");
  EXPECT_EQ(value_in_version_py(kVersionPy, "hip"), "");
  EXPECT_EQ(value_in_version_py(kVersionPy, "rocm"), "");
  EXPECT_EQ(value_in_version_py("cuda = \"12.8\"", "cuda"), "12.8");
  for (const auto* text : {"", "cuda", "cuda:", "cuda = '12", "cuda_arch = '9'", "cuda ="}) {
    EXPECT_EQ(value_in_version_py(text, "cuda"), "") << text;
  }
}

TEST(TorchInstall, AWheelAndItsNccl) {
  const Folder folder;
  folder.write("site-packages/torch/lib/libtorch_cpu.so");
  folder.write("site-packages/torch/lib/libtorch_cuda.so");
  folder.write("site-packages/torch/version.py", kVersionPy);
  folder.write("site-packages/nvidia/nccl/lib/libnccl.so.2");
  const auto torch = read_torch_install(folder.path() / "site-packages/torch", "here");
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->version, "2.11.0+cu130");
  EXPECT_EQ(torch->cuda_version, "13.0");
  EXPECT_TRUE(torch->has_cuda);
  EXPECT_FALSE(torch->has_hip);
  EXPECT_EQ(torch->nccl_path, folder.path() / "site-packages/nvidia/nccl/lib/libnccl.so.2");
}

TEST(TorchInstall, AnArchiveHasABuildVersion) {
  const Folder folder;
  folder.write("libtorch/lib/libtorch_cpu.so");
  folder.write("libtorch/build-version", "2.11.0+cpu\n");
  const auto torch = read_torch_install(folder.path() / "libtorch", "here");
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->version, "2.11.0+cpu");
  EXPECT_FALSE(torch->has_cuda);
  EXPECT_EQ(read_torch_install(folder.path(), "here"), std::nullopt);
}

TEST(TorchInstall, EachIsFoundOnceAndByItsFirstName) {
  const Folder folder;
  folder.write("deps/python/torch/lib/libtorch_cpu.so");
  folder.write("deps/python/torch/share/cmake/Torch/TorchConfig.cmake");
  const auto deps = (folder.path() / "deps").string();
  const auto found =
      find_torch_installs({.torch_cmake = deps + "/python/torch/share/cmake/Torch", .deps = deps, .ask_python = false});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].from, "Torch_DIR");
  EXPECT_EQ(find_torch_installs({.torch_dir = "/nonexistent", .ask_python = false}).size(), 0U);
}

}  // namespace
}  // namespace yoke::device
