#include "yoke/train/watch/detail/growing_file.h"

#include <unistd.h>

namespace yoke::train::detail {

void GrowingFile::flush() {
  if (pending_.empty()) return;
  try {
    write_all(fd_.value(), pending_, path_.string());
  } catch (...) {
    // Removes a partly written record. If more records followed it, readers would stop there.
    if (ftruncate(fd_.value(), written_bytes_) == 0) lseek(fd_.value(), written_bytes_, SEEK_SET);
    throw;
  }
  written_bytes_ += std::ssize(pending_);
  pending_.clear();
}

}  // namespace yoke::train::detail
