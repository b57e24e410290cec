// yoke/keep/container_log.h -- the output of a container whose engine keeps none: a file of limited size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"

namespace yoke::keep {

/// The file has no name, so nothing stays when the processes that have it open have ended.
class ContainerLog {
 public:
  /// Copies from `source`, the read end of a pipe. The file keeps at most `most_bytes`: the last half of these stays
  /// when it is full, or half of what there is when the disk is full, with a line at the beginning that says so. It is
  /// in $TMPDIR, or else in /var/tmp, and 1 MiB of it is reserved, so that there is something to keep on a full disk.
  /// Errors  as errno says; kUnavailable: the disk is full already.
  ContainerLog(UniqueFd source, const Environment& environment, int64_t most_bytes);

  int source() const { return source_.value(); }  ///< For poll(); -1 after the end of the output.
  int file() const { return file_.value(); }

  /// Copies what has come. Does not block.
  void copy();

  /// The last bytes of the output.
  std::string tail(int64_t most_bytes) const;

 private:
  size_t append(std::string_view text);  ///< Returns how much could be written.
  void keep_last(int64_t num_bytes, const std::string& before = "");
  bool reserve() const;

  UniqueFd source_, file_;
  int64_t most_bytes_, size_ = 0;
};

/// Copies what is in the file of a log to `out`, a descriptor; then, until `end` (a socket) is closed by the other
/// side, also what comes. Errors  as errno says: it cannot be written.
void copy_log(int file, int out, int end, bool follows);

}  // namespace yoke::keep
