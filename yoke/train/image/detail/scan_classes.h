// yoke/train/image/detail/scan_classes.h -- lists the files of a folder with one folder per class. Without libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::train::detail {

/// The files in order: class by class, and within a class by folder and name, compared byte by byte. All paths are in
/// one string, because millions of separate strings would take twice the memory.
struct ClassFiles {
  std::vector<std::string> classes;   ///< Ascending.
  std::vector<int64_t> class_ends;    ///< For each class, one past the index of its last file.
  std::string paths;                  ///< Paths relative to the folder, CLASS/.../NAME, without separators.
  std::vector<uint64_t> path_begins;  ///< Where each file's path begins in `paths`; the last entry is paths.size().
  int64_t num_ignored = 0;            ///< Files with other extensions, and files outside of class folders.

  int64_t size() const { return static_cast<int64_t>(path_begins.size()) - 1; }
  std::string_view path(int64_t file) const;
  int64_t class_of(int64_t file) const;
};

/// Reads the folders below `root`, follows symbolic links, and makes no system call per file.
/// Errors  as errno says, with the path; kNotFound: there are no classes; kInvalidArgument: a class has no image and
///         `allow_empty` is false, a file's extension is an image format that torchvision reads and yoke does not, or a
///         link leads to a folder that contains the link.
ClassFiles scan_classes(const std::string& root, bool allow_empty);

}  // namespace yoke::train::detail
