// yoke/train/checkpoint/step_folder.h -- a folder of checkpoints by step: their names, the newest that is sound, the
// ones to keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
  int64_t keep = 2;       ///< So many of the newest are left after a save, the new one included; at least 1.
  int64_t keep_best = 0;  ///< And so many of the best, whether they are among those or older.
  std::string metric;     ///< By this number among the metadata, say {"loss", "0.25"}; required for keep_best.
  Best best = Best::kSmallest;
  Warn warn = warn_on_stderr;  ///< Is told on rank 0 of checkpoints that were refused and parts that were left out.
};

/// `checkpoint-<12 digits>.safetensors`, or a folder `checkpoint-<12 digits>`, which counts once it has its index.
class StepFolder {
 public:
  /// Errors  kInvalidArgument for options that contradict their descriptions.
  StepFolder(std::filesystem::path path, const CheckpointFolderOptions& options);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file_of(int64_t step) const;    ///< Where a file is, or would be.
  std::filesystem::path folder_of(int64_t step) const;  ///< Where a folder is, or would be.
  std::filesystem::path path_of(int64_t step) const;    ///< The folder when there is a complete one, else the file.
  /// nullopt for all other names: "checkpoint-7.safetensors" is somebody's own copy.
  static std::optional<int64_t> step_of(std::string_view name);
  std::vector<int64_t> steps() const;  ///< Of complete ones, ascending.
  std::optional<int64_t> best_step() const;

  /// Errors  kInvalidArgument when the best are kept and what `metadata` has under the metric's name is no number.
  void check_metric(int64_t step, const StringMap& metadata) const;

  /// Removes what `newest`, now safely on disk, makes superfluous: never a later step. It does not throw: what cannot
  /// be removed is tried again after the next save.
  void prune(int64_t newest) const noexcept;

  /// Collective. The newest that is sound, the same on all ranks: rank 0 chooses, and warns of
  /// each one that it refused; the others read what it chose. nullopt when there is none at all.
  /// Errors  on all ranks: there are checkpoints and all are refused (the newest's error); a rank cannot read the one
  ///         that was chosen.
  std::optional<StoredCheckpoint> newest_sound(dist::Group& group) const;

 private:
  bool exists(int64_t step) const;
  std::optional<StoredCheckpoint> newest_sound() const;
  StoredCheckpoint read(int64_t step) const;
  std::vector<int64_t> best_first(const std::vector<int64_t>& steps) const;
  std::vector<int64_t> superseded(int64_t newest) const;
  void remove_abandoned() const;

  std::filesystem::path path_;
  CheckpointFolderOptions options_;
};

/// Makes a folder, with those above it. Errors: as errno says, with its name.
void make_folder(const std::filesystem::path& folder);

/// Names of a folder's entries; none when it does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace yoke::train
