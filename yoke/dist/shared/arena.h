// yoke/dist/shared/arena.h -- memory for tensors that other ranks of the host read and write in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "yoke/base/file.h"

namespace yoke::dist::shared {

/// Where the memory of a tensor lies in the file that ranks share.
struct Place {
  int64_t offset = -1;  ///< Of the block in the file; -1: the memory is this rank's own.
  int64_t bytes = 0;    ///< Of the block.
  int64_t inside = 0;   ///< Where in the block the tensor begins.
};

/// A rank's part of the file, far larger than any memory: pages exist once they are touched, and end with their block.
/// Other ranks map a block when they first meet it.
///
/// Threads  any.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  struct Options {
    int64_t begin = 0, bytes = 0;  ///< This rank's part of the file; blocks are never reused.
  };
  Arena(const UniqueFd& file, const Options& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns null if there is no space, or it cannot be mapped.
  std::shared_ptr<std::byte> allocate(int64_t bytes);
  /// The place of memory in a block of this rank.
  Place find(const std::byte* memory, int64_t bytes) const;
  /// Memory of another rank. Errors  as errno says.
  std::byte* map(const Place& place);

 private:
  void release(std::byte* memory, Place place);

  const UniqueFd file_;
  const int64_t end_;
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  std::map<const std::byte*, Place> own_;                        ///< By the first byte.
  std::map<int64_t, std::pair<std::byte*, int64_t>> of_others_;  ///< By offset: memory and bytes.
};

}  // namespace yoke::dist::shared
