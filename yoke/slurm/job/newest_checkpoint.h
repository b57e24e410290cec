// yoke/slurm/job/newest_checkpoint.h -- finds the checkpoint from which a program would go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace yoke::slurm {

struct NewestCheckpoint {
  std::string path;
  std::filesystem::file_time_type time;
};
struct CheckpointSearch {
  std::optional<NewestCheckpoint> newest;
  bool is_complete = true;  ///< Whether all files were looked at.
};
/// Looks for the names that trainings give to checkpoints (yoke, PyTorch, Lightning, Hugging Face, DeepSpeed) among the
/// first `most_files` files below `folder`, five folders deep, because folders of jobs may be huge.
CheckpointSearch find_checkpoint(const std::string& folder, int64_t most_files);

/// The same as a sentence, for at most 20,000 files.
std::string checkpoint_text(const std::string& folder);

}  // namespace yoke::slurm
