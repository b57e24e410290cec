// yoke/train/checkpoint/stored_checkpoint.h -- a checkpoint on disk, either a file from one rank or a folder from all
// ranks.
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
  int64_t num_shards = 0;  ///< Number of ranks that wrote a folder; 0 for a file.
  StringMap metadata;      ///< The user's metadata.
  StringMap marks;         ///< The format's own metadata, whose names begin with "yoke.".
  /// Reads from mapped files, which it keeps open. Reading a tensor from a shard checks its checksum (kDataLoss).
  TensorSource source;

  /// The tensors of one part of the state, without the part's prefix.
  TensorSource part(const std::string& name) const { return part_of(source, name); }

  /// The averages in the part `name`, an ExponentialMovingAverage, under the names of the model's tensors:
  /// `load_module(best.averages("ema"), *model)`.
  TensorSource averages(const std::string& name) const { return part_of(source, name + "/average", '.'); }
};

/// Opens a file and checks every byte of it, or opens a folder and checks its index and headers.
/// Errors  with the path and the reason: kNotFound; kDataLoss: it is torn, truncated, changed, from another save, or
///         not a checkpoint of yoke; kFailedPrecondition: the format is newer; as errno says if it cannot be read.
StoredCheckpoint read_checkpoint(const std::filesystem::path& path);

}  // namespace yoke::train
