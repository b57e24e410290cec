// yoke/train/image/detail/scan_classes.h -- lists the files of a folder with one folder per class. Without libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::train::detail {

/// The files in order: class by class, and within a class by folder and name, in the order of bytes. Millions of paths
/// are one string, as a string of its own each would double their memory.
struct ClassFiles {
  std::vector<std::string> classes;   ///< Ascending.
  std::vector<int64_t> class_ends;    ///< For each class, one more than its last file.
  std::string paths;                  ///< Below the folder, CLASS/.../NAME, one after the other.
  std::vector<uint64_t> path_begins;  ///< One per file, and paths.size().
  int64_t num_ignored = 0;            ///< Files with other extensions, and files beside the classes.

  int64_t size() const { return static_cast<int64_t>(path_begins.size()) - 1; }
  std::string_view path(int64_t file) const;
  int64_t class_of(int64_t file) const;
};

/// Reads the folders below `root`, through symbolic links too, without a system call per file.
/// Errors  as errno says, with the path; kNotFound: there are no classes; kInvalidArgument: a class has no image and
///         `allow_empty` is false, an image has a format that is not supported (by extension, as torchvision knows
///         them), or a link leads to a folder that contains it.
ClassFiles scan_classes(const std::string& root, bool allow_empty);

}  // namespace yoke::train::detail
