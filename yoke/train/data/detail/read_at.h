// yoke/train/data/detail/read_at.h -- reads a part of a file. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "yoke/base/file.h"

namespace yoke::train::detail {

/// A regular file that is open for reading. Several threads may read it.
struct OpenFile {
  std::filesystem::path path;
  UniqueFd fd;
  int64_t size_bytes = 0;
};

/// Errors  as errno says, with the path; kDataLoss: it is not a regular file.
OpenFile open_file(const std::filesystem::path& path);

/// Fills `to` from position `offset` on.
/// Errors  kDataLoss: the file is too short; as errno says. The message names the path and the position.
void read_at(const OpenFile& file, int64_t offset, std::span<std::byte> to);

}  // namespace yoke::train::detail
