// yoke/train/watch/detail/event_file.h -- one growing file of TensorBoard's events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::train::detail {

/// A new event file, which nobody else writes.
///
/// A reader may follow the file while it grows. After a crash it ends with a whole record or with a part of one, which
/// readers pass over.
class EventFile {
 public:
  /// Makes `folder` and a file in it whose name TensorBoard expects and no other file has.
  /// Errors  as errno says, with the path.
  explicit EventFile(const std::filesystem::path& folder);

  void add(std::string_view event);

  /// Writes what was added. Errors: as errno says (a full disk is kUnavailable), with the path; what could not be
  /// written is kept for the next call.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string pending_;        ///< Records that are not in the file.
  int64_t written_bytes_ = 0;  ///< Length of the file's whole records.
};

/// Seconds since the Unix epoch.
double wall_time();

}  // namespace yoke::train::detail
