// yoke/train/checkpoint/stored_checkpoint.h -- a checkpoint as it lies on the disk, whoever wrote it: one rank a file,
// or all ranks a folder.
//
//     const auto best = read_checkpoint(folder.path_of(*folder.best_step()));
//     load_module(best.part("model"), *model);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "yoke/train/checkpoint/tensor_source.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::train {

struct StoredCheckpoint {
  std::filesystem::path path;
  int64_t step = 0;
  int64_t num_shards = 0;  ///< How many ranks wrote a folder; 0 for a file.
  StringMap metadata;      ///< Without the format's own names, which begin with "yoke.".
  StringMap marks;         ///< These.
  /// Of mapped files, which it keeps. A shard's tensors are checked when something of them is read: kDataLoss.
  TensorSource source;

  /// The tensors of a part, under their names in it.
  TensorSource part(const std::string& name) const { return part_of(source, name); }
};

/// Opens a file, every byte of which is checked then, or a folder, of which the index and the headers are.
/// Errors  with the path and the reason: kNotFound; kDataLoss for what is torn, truncated, changed, of another save, or
///         no checkpoint of yoke; kFailedPrecondition for a newer format; as errno says when it cannot be read.
StoredCheckpoint read_checkpoint(const std::filesystem::path& path);

}  // namespace yoke::train
