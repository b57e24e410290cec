// yoke/train/checkpoint/checkpoint_folder.h -- keeps the states of a training by step, in files that survive crashes,
// full disks and failed saves. docs/checkpoint.md has an example and the formats.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/train/checkpoint/step_folder.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {

/// The progress of one save on this rank.
struct SaveProgress {
  int64_t step = 0;
  int64_t written_bytes = 0;  ///< Bytes that this rank has written.
  int64_t num_bytes = 0;  ///< All bytes that this rank writes; 0 before writing begins, or if only other ranks write.
  std::chrono::nanoseconds held{};     ///< Time that the training waited, for an earlier save and for the copy.
  std::chrono::nanoseconds writing{};  ///< Time from the end of the copy until the checkpoint is on disk.
  bool done = false;                   ///< The save is on disk or has failed.
};

/// A folder of checkpoints. A run resumes from the newest intact one.
/// Form     if every rank has the whole state, rank 0 writes one file. If parts of the state are divided between ranks,
///          each rank writes a file to a common folder. Both forms are loaded by the same calls, on any number of
///          ranks.
/// Promise  if a save ends early (by SIGKILL, a full disk, a power cut), the previous checkpoint remains intact. When
///          `save` has returned, the checkpoint is on disk.
/// Best     chosen by a number in the metadata of the checkpoints, so a resumed run compares with the checkpoints of
///          the first run. Of two equal checkpoints, the earlier one is better. A checkpoint without the number, or
///          with NaN, is never among the best.
/// Ranks    members that take a TrainState are collective over its Group; all ranks must see the folder.
/// Writers only one run may write at a time: hold a FolderLock.
class CheckpointFolder {
 public:
  /// Errors kInvalidArgument: the options are not valid.
  explicit CheckpointFolder(std::filesystem::path folder, const CheckpointFolderOptions& options = {});
  CheckpointFolder(CheckpointFolder&&) noexcept;
  /// Waits for the save in progress. If its error was not reported yet, passes the error to
  /// CheckpointFolderOptions::warn.
  ~CheckpointFolder();

  /// Collective. Writes a checkpoint and creates the folder if necessary. After the checkpoint is safely on disk,
  /// removes older checkpoints beyond `keep` and `keep_best`, and the remains of killed saves. Never touches
  /// checkpoints of later steps. `metadata` holds texts for people and for `keep_best`, in addition to those of the
  /// state.
  /// Errors  on all ranks: kInvalidArgument, before anything is written: a metric is set and its value in the metadata
  ///         is not a number (as std::from_chars reads it: "0.25", "1e-3", "nan"; not "+1"), or a name begins with
  ///         "yoke."; kUnavailable: the disk is full (gives the bytes needed and free); those of write_safetensors.
  ///         Earlier checkpoints are unchanged, and the message names the last one.
  std::filesystem::path save(int64_t step, const TrainState& state, const StringMap& metadata = {});

  /// Collective. Like save(), but returns when the state is copied; a separate thread writes it. The files and
  /// guarantees are those of save(). At most one save is in progress, and a second one waits for the first. To skip a
  /// save instead of waiting, check busy() before.
  /// Memory   one copy of the data that this rank writes, reused while names, shapes and dtypes stay the same. Copies
  ///          of a GPU's tensors are in pinned memory.
  /// Errors   on all ranks: those of the previous save, which is not repeated; in this case no new save begins.
  void save_async(int64_t step, const TrainState& state, const StringMap& metadata = {});

  /// Waits until everything is on disk. Call it before World::shutdown, which closes the writers' connections.
  /// Errors  those of the save in progress, once, on all ranks.
  void finish();

  /// Not collective. Before World::recover(): waits until this rank's part of the save in flight has ended, without an
  /// error if it has failed because ranks were lost, and forgets the connections for it.
  void abandon();

  bool busy() const;
  /// The progress of the current save, or else of the last one. May be called at any time, from any thread.
  SaveProgress progress() const;

  /// Collective. Loads the newest intact checkpoint into `state` and returns it; nullopt if there is no checkpoint. For
  /// each newer checkpoint that is refused, calls CheckpointFolderOptions::warn with the reason.
  /// Errors  on all ranks: all checkpoints are refused (the error is that of the newest); see also TrainState::load.
  std::optional<StoredCheckpoint> load_latest(TrainState& state) const;

  /// Collective. Opens the checkpoint that load_latest() loads. A program may need its metadata before it constructs
  /// the parts of its state.
  std::optional<StoredCheckpoint> newest(dist::Group& group) const;
  std::optional<StoredCheckpoint> newest() const;  ///< The same for a rank alone; not collective.

  /// The steps of all checkpoints, intact or not, ascending. A new run should check first that there are none. If an
  /// earlier run left a checkpoint of a later step, the new run would resume from it.
  std::vector<int64_t> steps() const;

  /// The step of the best checkpoint by `metric`; nullopt if no checkpoint has this number. Open the checkpoint with
  /// read_checkpoint(path_of(step)). Reads only the headers.
  std::optional<int64_t> best_step() const;

  std::filesystem::path path_of(int64_t step) const;
  const std::filesystem::path& folder() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
