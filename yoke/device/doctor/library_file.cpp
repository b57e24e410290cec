#include "yoke/device/doctor/library_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = 0x0300;  // glibc's FLAG_X8664_LIB64
constexpr auto kTriplet = "x86_64-linux-gnu";
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = 0x0a00;  // FLAG_AARCH64_LIB64
constexpr auto kTriplet = "aarch64-linux-gnu";
#else
constexpr uint32_t kArchitecture = 0;
constexpr auto kTriplet = "";
#endif

// The format of ldconfig's cache: a header, entries, then strings. Offsets of strings count from the header.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr size_t kHeaderBytes = 48;
struct DynamicEntry {
  int32_t flags;
  uint32_t key, value, os_version;
  uint64_t hardware;
};

std::string_view text_at(std::string_view cache, uint32_t offset) {
  if (offset >= cache.size()) return "";
  const auto end = cache.find('\0', offset);
  return end == cache.npos ? "" : cache.substr(offset, end - offset);
}

/// Follows symbolic links from `path`. The target of an absolute link is taken below `sysroot`.
fs::path resolve(fs::path path, const fs::path& sysroot) {
  for (int i = 0; i < 8; ++i) {
    std::error_code error;
    const auto target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? sysroot / target.relative_path() : path.parent_path() / target;
  }
  return path;
}

LibraryFile describe(const fs::path& path, std::string_view name, const fs::path& sysroot) {
  const auto file = resolve(sysroot / path.relative_path(), sysroot);
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  LibraryFile found{.path = path.string()};
  // The version follows ".so." in names such as "libcuda.so.580.65.06" and "libnccl.so.2.27.3".
  const auto real = file.filename().string();
  const auto so = real.find(".so.");
  if (so != real.npos && real != name && real.find('.', so + 4) != real.npos) found.version = real.substr(so + 4);
  return found;
}

}  // namespace

std::string path_in_loader_cache(std::string_view cache, std::string_view name) {
  const auto begin = cache.find(kMagic);  // an older cache format may precede it in the file
  if (begin == cache.npos) return "";
  cache.remove_prefix(begin);
  uint32_t count = 0;
  if (cache.size() < kHeaderBytes) return "";
  std::memcpy(&count, cache.data() + kMagic.size(), sizeof count);
  count = static_cast<uint32_t>(std::min<size_t>(count, (cache.size() - kHeaderBytes) / sizeof(DynamicEntry)));
  for (uint32_t i = 0; i < count; ++i) {
    DynamicEntry entry = {};
    std::memcpy(&entry, cache.data() + kHeaderBytes + i * sizeof(DynamicEntry), sizeof entry);
    const bool is_ours = kArchitecture == 0 || (static_cast<uint32_t>(entry.flags) & 0xff00) == kArchitecture;
    if (is_ours && text_at(cache, entry.key) == name) return std::string(text_at(cache, entry.value));
  }
  return "";
}

LibraryFile find_library(std::string_view name, const fs::path& sysroot, std::string_view ld_library_path,
                         const std::vector<std::string>& more) {
  std::vector<fs::path> candidates;
  for (const auto folder : split(ld_library_path, ':')) {
    if (!folder.empty()) candidates.push_back(fs::path(folder) / name);
  }
  try {
    const auto cached = path_in_loader_cache(read_file(sysroot / "etc/ld.so.cache"), name);
    if (!cached.empty()) candidates.emplace_back(cached);
  } catch (const Error&) {  // musl has no such file
  }
  for (const fs::path folder : {"/lib", "/usr/lib"}) candidates.push_back(folder / kTriplet / name);
  for (const fs::path folder : {"/lib64", "/usr/lib64", "/usr/lib"}) candidates.push_back(folder / name);
  for (const auto& folder : more) candidates.push_back(fs::path(folder) / name);
  for (const auto& candidate : candidates) {
    auto found = describe(fs::absolute(candidate), name, sysroot);
    if (!found.path.empty()) return found;
  }
  return {};
}

}  // namespace yoke::device
