// fakes/sysfs/fixture_tree.h -- a temporary folder for a test, with files like those in /proc and /sys.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace yoke::fakes {

class FixtureTree {
 public:
  /// The folder is in memory where it can be: some machines have thousands of files, which ext4 needs a second to make.
  FixtureTree() {
    const bool is_shm_writable = access("/dev/shm", W_OK | X_OK) == 0;
    const auto where = is_shm_writable ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
    auto name = (where / "yoke-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  /// Copies `folders` of `machine`, a folder written by make-sysroot. The test may change the copy.
  FixtureTree(const std::filesystem::path& machine, const std::vector<std::string>& folders) : FixtureTree() {
    namespace fs = std::filesystem;
    for (const auto& folder : folders) {
      fs::create_directories((path_ / folder).parent_path());
      fs::copy(machine / folder, path_ / folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
  }
  FixtureTree(const FixtureTree&) = delete;
  FixtureTree& operator=(const FixtureTree&) = delete;
  ~FixtureTree() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  void remove(const std::string& file) const { std::filesystem::remove_all(path_ / file); }

 private:
  std::filesystem::path path_;
};

}  // namespace yoke::fakes
