// yoke/train/checkpoint/detail/sharded_files.h -- a checkpoint in which every rank writes its own part, and which can
// be read on any number of ranks. docs/checkpoint.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "yoke/train/checkpoint/detail/whole_file.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/checkpoint/tensor_slice.h"

namespace yoke::train {

/// Name of the index file. A folder of shards is a complete checkpoint when it contains the index.
inline constexpr auto kShardIndex = "index.json";

/// Collective. Replaces the checkpoint in `folder`. All ranks must see the folder, and only one run at a time may use
/// it (FolderLock). Even after a crash, the folder holds the old checkpoint or the new one: every rank writes and syncs
/// its own file, then rank 0 replaces the index that names these files, then the old files are removed. `slices` are
/// those that `plan` assigns to this rank (see own_slices).
/// Threads  the slices must not change during the call.
/// Errors   on all ranks if one rank cannot write: that rank throws its own error, the others its rank and message.
void write_sharded(dist::Group& group, const std::filesystem::path& folder, int64_t step, const TensorSlices& slices,
                   const StringMap& metadata, const OnWritten& on_written = {});

/// The slices that `rank` writes: those of its `slices` that no lower rank holds.
TensorSlices own_slices(const TensorSlices& slices, const std::vector<PlannedTensor>& plan, int64_t rank);

/// See read_checkpoint. REQUIRES: `folder` is a folder.
StoredCheckpoint read_sharded(const std::filesystem::path& folder);

/// The index's metadata. Errors: those of read_sharded.
StringMap sharded_metadata(const std::filesystem::path& folder);

/// Removes a checkpoint, the index first. Keeps other files in the folder, and then also the folder itself.
void remove_sharded(const std::filesystem::path& folder);

}  // namespace yoke::train
