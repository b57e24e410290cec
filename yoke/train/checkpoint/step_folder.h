// yoke/train/checkpoint/step_folder.h -- a folder of checkpoints by step, whatever one of them is made of: their names,
// the newest that is sound, the ones to keep. CheckpointFolder and ShardedCheckpointFolder are made of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/safetensors.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

/// Receives one line about something that was survived.
using Warn = std::function<void(const std::string& message)>;

enum class Best { kSmallest, kLargest };

struct CheckpointFolderOptions {
  int64_t keep = 2;       ///< So many of the newest are left after a save, the new one included; at least 1.
  int64_t keep_best = 0;  ///< And so many of the best, whether they are among those or older.
  std::string metric;     ///< By this number among the metadata, say {"loss", "0.25"}; required for keep_best.
  Best best = Best::kSmallest;
};

class StepFolder {
 public:
  /// The metadata of a checkpoint. Errors: those of one that is damaged or gone.
  using MetadataOf = std::function<StringMap(const std::filesystem::path& checkpoint)>;

  /// Checkpoints are named `checkpoint-<12 digits>`, and are files that end with `suffix`, or folders that are finished
  /// once they have the file `index`: one of the two, the other is empty.
  /// Errors  kInvalidArgument for options that contradict their descriptions.
  StepFolder(std::filesystem::path path, const CheckpointFolderOptions& options, std::string suffix, std::string index,
             MetadataOf metadata_of);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path path_of(int64_t step) const;
  /// nullopt for all other names: "checkpoint-7.safetensors" is somebody's own copy.
  std::optional<int64_t> step_of(std::string_view name) const;
  std::vector<int64_t> steps() const;  ///< Of finished ones, ascending.
  std::optional<int64_t> best_step() const;

  /// Errors  kInvalidArgument when the best are kept and what `metadata` has under the metric's name is no number.
  void check_metric(int64_t step, const StringMap& metadata) const;

  /// Steps to be removed once that of `newest` is safely on disk; never a later one.
  std::vector<int64_t> superseded(int64_t newest) const;

  /// The newest of which `read(step)` gives something, with its step; each that throws on the way goes to `warn`.
  /// Errors  there are checkpoints and all are refused: the newest's error.
  template <class Read, class T = std::invoke_result_t<Read, int64_t>>
  std::optional<std::pair<int64_t, T>> newest_sound(const Read& read, const Warn& warn) const {
    std::optional<std::pair<int64_t, T>> found;
    visit_newest_first([&](int64_t step) { found.emplace(step, read(step)); }, warn);
    return found;
  }

  /// Collective. The same on all ranks: rank 0 chooses (and alone warns), the others read what it chose.
  /// Errors  on all ranks when one cannot read.
  template <class Read, class T = std::invoke_result_t<Read, int64_t>>
  std::optional<std::pair<int64_t, T>> newest_sound(dist::World& world, const Read& read, const Warn& warn) const {
    std::optional<std::pair<int64_t, T>> found;
    visit_newest_first(
        world, [&](int64_t step) { found.emplace(step, read(step)); }, warn);
    return found;
  }

 private:
  bool exists(int64_t step) const;
  using Visit = std::function<void(int64_t step)>;
  void visit_newest_first(const Visit& visit, const Warn& warn) const;
  void visit_newest_first(dist::World& world, const Visit& visit, const Warn& warn) const;
  std::vector<int64_t> best_first(const std::vector<int64_t>& steps) const;

  std::filesystem::path path_;
  CheckpointFolderOptions options_;
  std::string suffix_, index_;
  MetadataOf metadata_of_;
};

/// Makes a folder, with those above it. Errors: as errno says, with its name.
void make_folder(const std::filesystem::path& folder);

/// Names of a folder's entries; none when it does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace yoke::train
