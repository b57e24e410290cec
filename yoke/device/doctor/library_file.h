// yoke/device/doctor/library_file.h -- finds the file that the loader would load for a library, without loading it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

/// The file that the loader would load for a library.
struct LibraryFile {
  std::string path;     ///< Empty if it was not found.
  std::string version;  ///< "580.65.06", from the file name to which the symbolic link leads; empty if that has none.

  bool operator==(const LibraryFile&) const = default;
};

/// Searches for `name` ("libcuda.so.1") in LD_LIBRARY_PATH, /etc/ld.so.cache, the system's folders and the folders in
/// `more`, in this order, all below `sysroot`.
LibraryFile find_library(std::string_view name, const std::filesystem::path& sysroot, std::string_view ld_library_path,
                         const std::vector<std::string>& more = {});

/// Returns the path of `name` for this CPU architecture in the content of /etc/ld.so.cache (glibc 2.2 and later), or an
/// empty text if it is not listed.
std::string path_in_loader_cache(std::string_view cache, std::string_view name);

}  // namespace yoke::device
