// yoke/train/shard/sharded_checkpoint.h -- a checkpoint that all ranks write at once, each its part, and that any
// number of ranks can read. docs/sharded-training.md has the format.
//
//     const ShardedCheckpointFolder folder("out", {.keep = 2});
//     auto slices = in_group("model", sharded.slices());
//     append(slices, in_group("optimizer", slices_of_state(optimizer.state_dict(), sharded.slices())));
//     folder.save(world, step, slices);                             // on all ranks
//
//     if (const auto checkpoint = folder.load_latest(world, warn)) {  // on as many as there are now
//       load_slices(checkpoint->source("model"), sharded.slices());
//       optimizer.load_state_dict(read_state(checkpoint->source("optimizer"), sharded.slices()));
//     }
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/safetensors.h"
#include "yoke/train/checkpoint/step_folder.h"
#include "yoke/train/shard/tensor_slice.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

/// Collective. Replaces the checkpoint in `folder`, which all ranks must see, and which belongs to one run at a time
/// (FolderLock). Whatever happens, it holds the old checkpoint or the new one, both whole for a moment: every rank
/// writes and syncs a file of its own, then rank 0 replaces the index that names them, then the old files go.
/// Threads  the slices must not change meanwhile: save between steps.
/// Errors   on all ranks when one cannot write: its own error there, its rank and message elsewhere; kInvalidArgument
///          when the slices do not fit together (see gather_slices).
void write_sharded_checkpoint(dist::World& world, const std::filesystem::path& folder, int64_t step,
                              const TensorSlices& slices, const StringMap& metadata = {});

/// A checkpoint's files, mapped: a rank reads what it asks for. Not collective.
class ShardedCheckpoint {
 public:
  /// Reads the index, and every file's header.
  /// Errors  kNotFound without an index. kDataLoss, naming the file: one is missing, damaged, or of another save; an
  ///         element of a tensor is in none. kFailedPrecondition for a newer format.
  explicit ShardedCheckpoint(const std::filesystem::path& folder);

  int64_t step() const;
  int64_t num_shards() const;  ///< How many ranks wrote it.
  const StringMap& metadata() const;

  /// To read from, on its own as long as it lives, and so are tensors that it gives: they may be in the mapped files,
  /// so nobody writes to them. All tensors, or those of a group without "GROUP/". Each slice is checked against its
  /// CRC-32 when something of it is read: kDataLoss.
  SliceSource source() const;
  SliceSource source(const std::string& group) const { return group_of(source(), group); }

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// A folder of sharded checkpoints, `checkpoint-<step>/` each, of which the newest counts: what CheckpointFolder is to
/// files, with the same options. All ranks must see it; one run at a time writes (FolderLock).
class ShardedCheckpointFolder {
 public:
  /// Errors  kInvalidArgument for options that contradict their descriptions.
  explicit ShardedCheckpointFolder(std::filesystem::path folder, const CheckpointFolderOptions& options = {});

  /// Collective. Writes a checkpoint, and only once that is safely on disk removes older ones beyond `keep` and
  /// `keep_best`, and what killed saves left behind.
  /// Errors  on all ranks; see CheckpointFolder::save and write_sharded_checkpoint.
  void save(dist::World& world, int64_t step, const TensorSlices& slices, const StringMap& metadata = {}) const;

  /// Collective. The newest whose files are there and whole but for the tensors' values, which are checked when they
  /// are read; the same on all ranks: rank 0 chooses, and gives each one that it refused to `warn`. nullopt when there
  /// is no checkpoint at all.
  /// Errors  on all ranks: there are checkpoints and all are refused; a rank cannot read the one that was chosen.
  std::optional<ShardedCheckpoint> load_latest(dist::World& world, const Warn& warn) const;

  std::vector<int64_t> steps() const { return folders_.steps(); }            ///< Of those that are there, ascending.
  std::optional<int64_t> best_step() const { return folders_.best_step(); }  ///< nullopt: none has the metric.
  std::filesystem::path path_of(int64_t step) const { return folders_.path_of(step); }  ///< For ShardedCheckpoint.

 private:
  StepFolder folders_;
};

}  // namespace yoke::train
