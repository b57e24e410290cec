// yoke/train/checkpoint/checkpoint.h -- a training's state in files that survive crashes, full disks and each other.
// docs/checkpoint.md is the format's page; train_state.h fills a CheckpointState.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/train/checkpoint/safetensors.h"
#include "yoke/train/checkpoint/step_folder.h"

namespace yoke::train {

/// Everything that a resumed run needs. Names are the caller's; "group/name" by custom ("model/conv1.weight").
/// Metadata names that begin with "yoke." are the format's own.
struct CheckpointState {
  TensorMap tensors;
  StringMap metadata;
};

struct Checkpoint {
  std::filesystem::path path;
  int64_t step = 0;
  CheckpointState state;  ///< Tensors are contiguous copies on the CPU.
};

/// Is told how many bytes of a file's have been given to the system, on the thread that writes.
using OnWritten = std::function<void(int64_t written_bytes, int64_t num_bytes)>;

/// Replaces `path` by a checkpoint, atomically: whatever happens, it is the old file or the new one.
/// Threads  the tensors must not change meanwhile: save between steps.
/// Errors   kUnavailable when the disk is full, with the bytes needed and the bytes free; see write_safetensors.
void write_checkpoint(const std::filesystem::path& path, int64_t step, const CheckpointState& state,
                      const OnWritten& on_written = {});

/// Reads a checkpoint, every byte of which is under a checksum.
/// Errors  with the path and the reason: kDataLoss for a file that is torn, truncated, changed, or no checkpoint of
///         yoke; kFailedPrecondition for one of a newer format; as errno says when it cannot be read.
Checkpoint read_checkpoint(const std::filesystem::path& path);

/// A folder of `checkpoint-<step>.safetensors`, of which the newest sound one counts.
///
/// Best     by the metric in the files themselves, so that a resumed run goes on comparing where the first one stopped.
///          Of equal ones the earlier is better. A checkpoint without the number, or with NaN, is none of the best.
/// Ranks    one rank saves (rank 0, by custom); every rank may load. Only the member with a World is collective.
/// Writers  two processes that save into one folder harm neither's files, but prune each other's: hold a FolderLock.
class CheckpointFolder {
 public:
  /// Errors  kInvalidArgument for options that contradict their descriptions.
  explicit CheckpointFolder(std::filesystem::path folder, const CheckpointFolderOptions& options = {});

  /// Writes a checkpoint (making the folder if need be), and only once that is safely on disk removes older ones
  /// beyond `keep` and `keep_best`, and temporaries that killed writers left behind. Checkpoints of later steps are
  /// never touched.
  /// Errors  kInvalidArgument, before anything is written, when checkpoints are kept by a metric and what the metadata
  ///         has under its name is no number (as std::from_chars reads it: "0.25", "1e-3", "nan"; no "+1"). See
  ///         write_checkpoint; those that were there before are as they were, and the message names the last.
  std::filesystem::path save(int64_t step, const CheckpointState& state, const OnWritten& on_written = {}) const;

  /// The newest sound checkpoint; nullopt when there is no checkpoint at all. Each file that is refused on the way is
  /// given to `warn`, with the reason.
  /// Errors  there are checkpoints and all are refused: the newest's error, with its name.
  std::optional<Checkpoint> load_latest(const Warn& warn) const;

  /// Collective. The same on all ranks: rank 0 chooses (and alone warns), the others read what it chose; every rank
  /// needs to see the folder.
  /// Errors  on all ranks when one cannot read: its own error there, its rank elsewhere.
  std::optional<Checkpoint> load_latest(dist::World& world, const Warn& warn) const;

  /// Steps of the checkpoints that are there, sound or not, ascending. A run that starts anew asks first: a later
  /// checkpoint of an earlier run would win when this one is resumed.
  std::vector<int64_t> steps() const { return files_.steps(); }

  /// The step of the best checkpoint by `metric`, to be read with read_checkpoint(path_of(step)); nullopt when none has
  /// the number. Looks at the headers only.
  std::optional<int64_t> best_step() const { return files_.best_step(); }

  std::filesystem::path path_of(int64_t step) const { return files_.path_of(step); }
  const std::filesystem::path& folder() const { return files_.path(); }

 private:
  Checkpoint read(int64_t step) const;

  StepFolder files_;
};

/// Marks a folder as one run's until destroyed or the process is gone, however it ends. Move-only. Rank 0 holds it.
///
/// The mark is flock on `.yoke-lock` in the folder, which stays behind, harmless. Children made by fork without exec
/// keep it alive. Between hosts it holds where the file system carries flock (NFS since Linux 2.6.12; Lustre with
/// -o flock).
class FolderLock {
 public:
  /// Makes the folder if need be.
  /// Errors  kUnavailable when another run holds it, with the folder and that run's process.
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  UniqueFd fd_;
};

}  // namespace yoke::train
