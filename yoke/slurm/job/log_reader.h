// yoke/slurm/job/log_reader.h -- reads a file that a job writes, from where it was left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace yoke::slurm {

/// The file is open only while it is read, because an array may have thousands.
class LogReader {
 public:
  using Print = std::function<void(std::string_view line)>;

  explicit LogReader(std::string path) : path_(std::move(path)) {}

  bool has_begun() const { return has_begun_; }  ///< The file has been there.

  /// Prints complete lines that are new, at first those from the last `num_lines` on. A file that was written anew is
  /// new as a whole. Errors  those of open_regular_file().
  void print_new(std::optional<int64_t> num_lines, const Print& print);

  /// Prints what is left of a line without an end.
  void finish(const Print& print);

 private:
  std::string path_;
  bool has_begun_ = false;
  off_t at_ = 0;
  ino_t file_ = 0;
  std::string rest_;
};

}  // namespace yoke::slurm
