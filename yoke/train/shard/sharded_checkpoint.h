// yoke/train/shard/sharded_checkpoint.h -- a checkpoint that all ranks write at once, each its part, and that any
// number of ranks can read. docs/sharded-training.md has the format.
//
//     auto slices = in_group("model", sharded.slices());
//     append(slices, in_group("optimizer", slices_of_state(optimizer.state_dict(), sharded.slices())));
//     write_sharded_checkpoint(world, "out/checkpoint", step, slices);                   // on all ranks
//
//     const ShardedCheckpoint checkpoint("out/checkpoint");                              // on as many as there are now
//     load_slices(checkpoint.source("model"), sharded.slices());
//     optimizer.load_state_dict(read_state(checkpoint.source("optimizer"), sharded.slices()));
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "yoke/train/checkpoint/safetensors.h"
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

/// Whether there is one: an index. What it names may still be damaged.
bool has_sharded_checkpoint(const std::filesystem::path& folder);

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

}  // namespace yoke::train
