// yoke/train/watch/detail/growing_file.h -- a file to which whole records are appended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::train::detail {

/// A reader may read the file while it grows. After a crash, the last record of the file may be incomplete.
class GrowingFile {
 public:
  /// Appends to a file that now has `length` bytes.
  GrowingFile(std::filesystem::path path, UniqueFd fd, int64_t length)
      : path_(std::move(path)), fd_(std::move(fd)), written_bytes_(length) {}

  void add(std::string_view record) { pending_ += record; }

  /// Writes the added records. Errors: as errno says (a full disk is kUnavailable), with the path; records that could
  /// not be written are kept for the next call.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string pending_;        ///< Records that are not in the file yet.
  int64_t written_bytes_ = 0;  ///< Length of the file's whole records.
};

}  // namespace yoke::train::detail
