// yoke/train/checkpoint/step_folder.h -- a folder of checkpoints by step: their names, the newest intact one, and the
// ones to keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/warn.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

enum class Best { kSmallest, kLargest };

struct CheckpointFolderOptions {
  int64_t keep = 2;       ///< Number of newest checkpoints left after a save, including the new one; at least 1.
  int64_t keep_best = 0;  ///< Number of best checkpoints to keep. Some of them may also be among the newest.
  std::string metric;     ///< Metadata name of the number that decides the best; required for keep_best.
  /// Which values are better. It may be left out for names with the word loss, error, perplexity, mse, mae or rmse
  /// (kSmallest), and accuracy, acc, f1, auc, precision, recall, iou or bleu (kLargest), such as "val_loss".
  std::optional<Best> best;
  Warn warn = warn_on_stderr;  ///< Called on rank 0 for refused checkpoints and for parts that were left out.
};

/// Holds checkpoints: files `checkpoint-<12 digits>.safetensors`, and folders `checkpoint-<12 digits>`, which are
/// complete if they contain an index.
class StepFolder {
 public:
  /// Errors kInvalidArgument: the options are not valid, or do not say which values of `metric` are better.
  StepFolder(std::filesystem::path path, const CheckpointFolderOptions& options);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file_of(int64_t step) const;    ///< Path for a checkpoint in one file.
  std::filesystem::path folder_of(int64_t step) const;  ///< Path for a sharded checkpoint.
  std::filesystem::path path_of(int64_t step) const;    ///< The folder if it is complete, else the file.
  /// Returns nullopt for all other names, such as "checkpoint-7.safetensors", which may be a user's copy.
  static std::optional<int64_t> step_of(std::string_view name);
  std::vector<int64_t> steps() const;  ///< Steps of complete checkpoints, ascending.
  std::optional<int64_t> best_step() const;

  /// Errors  kInvalidArgument: a metric is set and its value in `metadata` is not a number.
  void check_metric(int64_t step, const StringMap& metadata) const;

  /// Removes the checkpoints that are no longer needed because `newest` is safely on disk. Never removes a later step.
  /// Does not throw: a failed removal is tried again after the next save.
  void prune(int64_t newest) const noexcept;

  /// Collective. Opens the newest intact checkpoint, the same on all ranks; nullopt if there is no checkpoint. Rank 0
  /// chooses it, and warns of each newer checkpoint that it refuses.
  /// Errors  on all ranks: all checkpoints are refused (the error is that of the newest), or a rank cannot read the
  ///         chosen one.
  std::optional<StoredCheckpoint> newest_sound(dist::Group& group) const;
  std::optional<StoredCheckpoint> newest_sound() const;  ///< The same for a rank alone; not collective.

 private:
  bool exists(int64_t step) const;
  StoredCheckpoint read(int64_t step) const;
  std::vector<int64_t> best_first(const std::vector<int64_t>& steps) const;
  std::vector<int64_t> superseded(int64_t newest) const;
  void remove_abandoned() const;

  std::filesystem::path path_;
  CheckpointFolderOptions options_;
};

/// Creates a folder and its parents. Errors: as errno says; the message names the folder.
void make_folder(const std::filesystem::path& folder);

/// Names of a folder's entries; empty if it does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace yoke::train
