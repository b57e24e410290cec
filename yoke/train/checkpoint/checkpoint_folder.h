// yoke/train/checkpoint/checkpoint_folder.h -- a training's states by step, in files that survive crashes, full disks
// and each other. docs/checkpoint.md has an example and the formats.
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

/// One save's figures on this rank, so far.
struct SaveProgress {
  int64_t step = 0;
  int64_t written_bytes = 0;           ///< By this rank.
  int64_t num_bytes = 0;               ///< That it has to write; 0 until writing begins, or when others do.
  std::chrono::nanoseconds held{};     ///< What the training waited for: an earlier save, and the copy.
  std::chrono::nanoseconds writing{};  ///< Since the copy was done, until the checkpoint was on disk.
  bool done = false;                   ///< On disk, or failed.
};

/// A folder of checkpoints, of which the newest sound one counts.
///
/// Form     one file, written by rank 0, when every rank has the whole state; when parts of it are divided between
///          ranks, a folder in which each writes a file. Both are loaded alike, on any number of ranks.
/// Promise  whatever ends a save (SIGKILL, a full disk, a power cut), the checkpoint before it is still there and
///          sound; one that `save` returned from is on disk.
/// Best     by a number among the metadata of the checkpoints themselves, so that a resumed run goes on comparing where
///          the first one stopped. Of equal ones the earlier is better. One without the number, or with NaN, is none of
///          the best.
/// Ranks    members that take a TrainState are collective over its Group; all ranks must see the folder.
/// Writers  one run at a time: hold a FolderLock.
class CheckpointFolder {
 public:
  /// Errors  kInvalidArgument for options that contradict their descriptions.
  explicit CheckpointFolder(std::filesystem::path folder, const CheckpointFolderOptions& options = {});
  CheckpointFolder(CheckpointFolder&&) noexcept;
  /// Waits for the save under way; its error, when nobody asked for it, goes to CheckpointFolderOptions::warn.
  ~CheckpointFolder();

  /// Collective. Writes a checkpoint (making the folder if need be), and only once that is safely on disk removes older
  /// ones beyond `keep` and `keep_best`, and what killed saves left behind. Checkpoints of later steps are never
  /// touched. `metadata` are texts for people and for `keep_best`, beside those of the state.
  /// Errors  on all ranks: kInvalidArgument, before anything is written, when checkpoints are kept by a metric and what
  ///         the metadata has under its name is no number (as std::from_chars reads it: "0.25", "1e-3", "nan"; no
  ///         "+1"), or a name begins with "yoke."; kUnavailable when the disk is full, with the bytes needed and free;
  ///         those of write_safetensors. What was there before is as it was, and the message names the last.
  std::filesystem::path save(int64_t step, const TrainState& state, const StringMap& metadata = {});

  /// Collective. The same, but returns once the state is copied, and writes it on a thread of its own: the same bytes,
  /// with the same promises. One save is under way at most: a second waits for the first, since a checkpoint that was
  /// asked for is one that is wanted; a training that would rather skip asks busy() before.
  /// Memory   one copy of what this rank writes, used again while names, shapes and dtypes stay; of a GPU's tensors in
  ///          pinned memory.
  /// Errors   on all ranks: those of the save before, which is not repeated; then nothing is begun.
  void save_async(int64_t step, const TrainState& state, const StringMap& metadata = {});

  /// Waits until everything is on disk; to be called before World::shutdown, which ends the writers' connections.
  /// Errors  those of the save under way, once, on all ranks.
  void finish();

  bool busy() const;
  /// Of the save under way, or else of the last one; may be asked at any time, from any thread.
  SaveProgress progress() const;

  /// Collective. Loads the newest sound checkpoint into `state`, and says which it was; nullopt when there is none at
  /// all. One that is refused on the way goes to CheckpointFolderOptions::warn, with the reason.
  /// Errors  on all ranks: there are checkpoints and all are refused (the newest's error); see TrainState::load.
  std::optional<StoredCheckpoint> load_latest(TrainState& state) const;

  /// Collective. The same checkpoint, opened and not loaded: a program may need what its metadata say before it makes
  /// the parts of its state.
  std::optional<StoredCheckpoint> newest(dist::Group& group) const;

  /// Steps of the checkpoints that are there, sound or not, ascending. A run that starts anew asks first: a later
  /// checkpoint of an earlier run would win when this one is resumed.
  std::vector<int64_t> steps() const;

  /// The step of the best checkpoint by `metric`, to be read with read_checkpoint(path_of(step)); nullopt when none has
  /// the number. Looks at the headers only.
  std::optional<int64_t> best_step() const;

  std::filesystem::path path_of(int64_t step) const;
  const std::filesystem::path& folder() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
