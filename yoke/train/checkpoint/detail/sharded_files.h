// yoke/train/checkpoint/detail/sharded_files.h -- a checkpoint that all ranks write at once, each its part, and that
// any number of ranks can read. docs/checkpoint.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/detail/whole_file.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/checkpoint/tensor_slice.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// In a folder of shards, the file whose presence says that the checkpoint is complete.
inline constexpr auto kShardIndex = "index.json";

/// Collective. Replaces the checkpoint in `folder`, which all ranks must see, and which belongs to one run at a time
/// (FolderLock). Whatever happens, it holds the old checkpoint or the new one, both whole for a moment: every rank
/// writes and syncs a file of its own, then rank 0 replaces the index that names them, then the old files go.
/// `slices` are those that `plan` gives to this rank (see own_slices).
/// Threads  the slices must not change meanwhile.
/// Errors   on all ranks when one cannot write: its own error there, its rank and message elsewhere.
void write_sharded(dist::Group& group, const std::filesystem::path& folder, int64_t step, const TensorSlices& slices,
                   const StringMap& metadata, const OnWritten& on_written = {});

/// What `rank` writes of what it holds: nothing that a lower rank has as well.
TensorSlices own_slices(const TensorSlices& slices, const std::vector<PlannedTensor>& plan, int64_t rank);

/// See read_checkpoint. REQUIRES: `folder` is a folder.
StoredCheckpoint read_sharded(const std::filesystem::path& folder);

/// The index's metadata. Errors: those of read_sharded.
StringMap sharded_metadata(const std::filesystem::path& folder);

/// Removes a checkpoint, the index first; files that are not of one stay, and the folder with them.
void remove_sharded(const std::filesystem::path& folder);

}  // namespace yoke::train
