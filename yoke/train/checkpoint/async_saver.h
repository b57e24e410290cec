// yoke/train/checkpoint/async_saver.h -- checkpoints that are written while the training goes on.
//
//     AsyncSaver saver(folder, warn);
//     ...
//     saver.save(step, state);   // returns once the state has been copied
//     ...
//     saver.finish();            // at the end; throws what went wrong
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "yoke/train/checkpoint/checkpoint.h"

namespace yoke::train {

/// One save's figures, so far.
struct SaveProgress {
  int64_t step = 0;
  int64_t written_bytes = 0;
  int64_t num_bytes = 0;               ///< Of the file; 0 until writing begins.
  std::chrono::nanoseconds held{};     ///< What the training waited for: an earlier save, and the copy.
  std::chrono::nanoseconds writing{};  ///< Since the copy was done, until the file was on disk.
  bool done = false;                   ///< On disk, or failed.
};

/// Copies a state into memory of its own and writes it through a CheckpointFolder on a thread of its own: the same
/// file, with the same promises, as `folder.save`.
///
/// One save is under way at most. A second waits for the first, since a checkpoint that was asked for is one that is
/// wanted; a training that would rather skip asks `busy()` before.
/// Memory   one copy of the state, kept and used again while names, shapes and dtypes stay; of a GPU's tensors in
///          pinned memory.
/// Threads  for one thread, that of the training; the World is not used.
class AsyncSaver {
 public:
  /// `warn` is told, by the destructor, of an error that nobody asked for.
  AsyncSaver(CheckpointFolder folder, Warn warn);

  /// Waits for the save under way.
  ~AsyncSaver();

  /// The tensors may change once this returns.
  /// Errors  those of the save before (see CheckpointFolder::save), which is not repeated; then nothing is begun.
  void save(int64_t step, const CheckpointState& state);

  /// Waits until everything is on disk. Errors: those of the save under way, once.
  void finish();

  bool busy() const;

  /// Of the save under way, or else of the last one; may be asked at any time, from any thread.
  SaveProgress progress() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
