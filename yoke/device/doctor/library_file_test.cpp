#include "yoke/device/doctor/library_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr int32_t kFlags = 0x0303;
#else
constexpr int32_t kFlags = 0x0a03;
#endif

struct Cached {
  int32_t flags;
  std::string name, path;
};

/// A cache as ldconfig writes it.
std::string make_cache(const std::vector<Cached>& entries) {
  std::string strings, table;
  const auto strings_begin = static_cast<uint32_t>(48 + 24 * entries.size());
  const auto add_text = [&](const std::string& text) {
    const auto offset = strings_begin + static_cast<uint32_t>(strings.size());
    strings += text + '\0';
    return offset;
  };
  const auto put = [&](auto number) { table.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const auto& entry : entries) {
    put(entry.flags);
    put(add_text(entry.name));
    put(add_text(entry.path));
    put(uint32_t{0});
    put(uint64_t{0});
  }
  std::string header = "glibc-ld.so.cache1.1";
  const auto count = static_cast<uint32_t>(entries.size());
  header.append(reinterpret_cast<const char*>(&count), sizeof count);
  header.resize(48, '\0');
  return header + table + strings;
}

class LibraryRoot {
 public:
  LibraryRoot() : path_(fs::temp_directory_path() / ("yoke-library-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  LibraryRoot(const LibraryRoot&) = delete;
  LibraryRoot& operator=(const LibraryRoot&) = delete;
  ~LibraryRoot() { fs::remove_all(path_); }

  void write(const std::string& file, const std::string& text = "") const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file, std::ios::binary) << text;
  }
  void link(const std::string& file, const std::string& target) const {
    fs::create_directories((path_ / file).parent_path());
    fs::create_symlink(target, path_ / file);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(LibraryFile, ReadsTheCacheOfThisMachine) {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  if (!file) GTEST_SKIP() << "no loader cache";
  const std::string cache((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto libc = path_in_loader_cache(cache, "libc.so.6");
  EXPECT_TRUE(fs::exists(libc)) << libc;
}

TEST(LibraryFile, TakesTheEntryOfThisProcessor) {
  const auto cache =
      make_cache({{0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"}, {kFlags, "libcuda.so.1", "/lib64/libcuda.so.1"}});
  EXPECT_EQ(path_in_loader_cache(cache, "libcuda.so.1"), "/lib64/libcuda.so.1");
  EXPECT_EQ(path_in_loader_cache("old form" + cache, "libcuda.so.1"), "/lib64/libcuda.so.1");
  EXPECT_EQ(path_in_loader_cache(cache, "libcuda.so"), "");
}

TEST(LibraryFile, ATornCacheHasNothing) {
  const auto cache = make_cache({{kFlags, "libcuda.so.1", "/lib64/libcuda.so.1"}});
  for (size_t size = 0; size + 1 < cache.size(); ++size)
    EXPECT_EQ(path_in_loader_cache(cache.substr(0, size), "libcuda.so.1"), "");
  auto far = cache;
  far[48 + 4] = far[48 + 5] = far[48 + 6] = far[48 + 7] = '\xff';
  EXPECT_EQ(path_in_loader_cache(far, "libcuda.so.1"), "");
}

TEST(LibraryFile, TheVersionIsThatOfTheFileBehindTheLinks) {
  const LibraryRoot root;
  root.write("usr/lib64/libcuda.so.580.65.06");
  root.link("usr/lib64/libcuda.so.1", "libcuda.so.580.65.06");
  root.link("usr/lib64/libnvidia-ml.so.1", "/usr/lib64/real/libnvidia-ml.so.575.51.03");
  root.write("usr/lib64/real/libnvidia-ml.so.575.51.03");
  root.write("opt/rocm/lib/libamdhip64.so");
  const auto find = [&](const char* name) {
    return find_library(name, root.path(), "/nonexistent", {"/opt/rocm/lib"});
  };
  EXPECT_EQ(find("libcuda.so.1"), (LibraryFile{"/usr/lib64/libcuda.so.1", "580.65.06"}));
  EXPECT_EQ(find("libnvidia-ml.so.1"), (LibraryFile{"/usr/lib64/libnvidia-ml.so.1", "575.51.03"}));
  EXPECT_EQ(find("libamdhip64.so"), (LibraryFile{"/opt/rocm/lib/libamdhip64.so", ""}));
  EXPECT_EQ(find("libnccl.so.2"), LibraryFile());
}

TEST(LibraryFile, LdLibraryPathComesFirst) {
  const LibraryRoot root;
  root.write("mine/libcuda.so.1");
  root.write("lib64/libcuda.so.1");
  root.write("etc/ld.so.cache", make_cache({{kFlags, "libcuda.so.1", "/lib64/libcuda.so.1"}}));
  EXPECT_EQ(find_library("libcuda.so.1", root.path(), "/other::/mine").path, "/mine/libcuda.so.1");
  EXPECT_EQ(find_library("libcuda.so.1", root.path(), "").path, "/lib64/libcuda.so.1");
}

}  // namespace
}  // namespace yoke::device
