// yoke/train/data/detail/tar_file.h -- the regular files in a tar file. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/train/data/detail/read_at.h"

namespace yoke::train::detail {

/// Where the content of a file lies in the tar file. A sparse file has only some of its parts there.
struct TarContent {
  struct Part {
    int64_t begin_byte = 0;  ///< In the file; between parts, a sparse file has zeros.
    int64_t num_bytes = 0;
    int64_t stored_at = 0;  ///< In the tar file.
  };
  int64_t stored_at = 0;  ///< Of a file that is not sparse: its content is in one piece.
  int64_t num_bytes = 0;
  bool is_sparse = false;
  std::vector<Part> parts;  ///< Of a sparse file, ascending.
};

struct TarEntry {
  std::string name;
  TarContent content;
};

/// Reads the headers of a tar file: POSIX ustar and pax, GNU's, and v7. Sparse files may have GNU's own form or one of
/// the three that it has for pax (0.0, 0.1 and 1.0).
/// Source  GNU tar 1.34, "Tar Internals" of its manual, and src/sparse.c.
class TarReader {
 public:
  /// Errors  kDataLoss: the file has no bytes. REQUIRES: the file stays open for as long as the reader is used.
  explicit TarReader(const OpenFile& file);

  /// Returns the next regular file; nullopt at the end.
  /// Errors  kDataLoss, naming the file and the position: it is not a tar file, is compressed, damaged or too short.
  std::optional<TarEntry> next();

 private:
  const OpenFile& file_;
  int64_t position_ = 0;
};

/// Errors  kDataLoss: the file is shorter than when its headers were read; as errno says. The message names the file.
std::string read_content(const OpenFile& file, const TarContent& content);

}  // namespace yoke::train::detail
