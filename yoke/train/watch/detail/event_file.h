// yoke/train/watch/detail/event_file.h -- one growing file of TensorBoard's events.
#pragma once

#include <filesystem>
#include <string_view>

#include "yoke/train/watch/detail/growing_file.h"

namespace yoke::train::detail {

/// A new event file. No other object or process writes to it.
class EventFile {
 public:
  /// Creates `folder` and a file in it, with a unique name of the form that TensorBoard expects.
  /// Errors  as errno says, with the path.
  explicit EventFile(const std::filesystem::path& folder);

  void add(std::string_view event);
  void flush() { file_.flush(); }  ///< See GrowingFile::flush.
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  GrowingFile file_;
};

/// Seconds since the Unix epoch.
double wall_time();

}  // namespace yoke::train::detail
