#include "yoke/train/checkpoint/stored_checkpoint.h"

#include <system_error>

#include "yoke/train/checkpoint/detail/sharded_files.h"
#include "yoke/train/checkpoint/detail/whole_file.h"

namespace yoke::train {

StoredCheckpoint read_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  auto checkpoint = std::filesystem::is_directory(path, ignored) ? read_sharded(path) : read_whole_file(path);
  for (auto entry = checkpoint.metadata.begin(); entry != checkpoint.metadata.end();) {
    const auto next = std::next(entry);
    if (entry->first.starts_with("yoke.")) checkpoint.marks.insert(checkpoint.metadata.extract(entry));
    entry = next;
  }
  return checkpoint;
}

}  // namespace yoke::train
