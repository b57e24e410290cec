// yoke/slurm/job/outputs.h -- the files in which a job's output is: whether Slurm can write them, those of ranks, and
// those of earlier runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yoke::slurm {

/// Errors  kInvalidArgument: the name of `folder` has a %, backslash or line end, which Slurm replaces in paths of
/// outputs; `advice` says what to do instead.
void require_plain_folder(const std::filesystem::path& folder, std::string_view advice);

/// The folder of the output `pattern` if it is not there, so that Slurm before 23.02 cannot write the file. nullopt: it
/// is there, or that cannot be told, because a pattern is in its name, or nodes alone may have it. A relative path is
/// one in `folder`.
std::optional<std::filesystem::path> missing_output_folder(const std::filesystem::path& pattern,
                                                           const std::filesystem::path& folder);

/// A file that one rank, or the ranks of one node, wrote: `yoke slurm submit --file-per-rank`.
struct RankOutput {
  std::string path;
  std::string job_id;  ///< "13", or "120_3" for a task of an array.
  bool is_node = false;
  int64_t index = 0;

  bool operator==(const RankOutput&) const = default;
};

/// Reads the name "slurm-JOB-rankR.out" or "slurm-JOB-nodeN.out". nullopt for other names. Pure.
std::optional<RankOutput> parse_rank_output(std::string_view path);
/// "rank 3" or "node 1". Pure.
std::string to_text(const RankOutput& output);

/// Such files of a job in `folder`, by rank. Empty if the folder cannot be read.
std::vector<RankOutput> rank_outputs(const std::filesystem::path& folder, const std::string& job_id);

/// The names PATH.0, PATH.1, ... that exist: `yoke slurm resume` has given them to the output of earlier runs.
std::vector<std::string> kept_outputs(const std::string& path);

/// Slurm truncates the output files of a job that runs again. This gives them such names before.
class KeptOutputs {
 public:
  /// Errors  kPermissionDenied: a file is not of this user; else as errno says: it cannot get another name.
  void keep(const std::string& path);
  /// Gives all files their names again.
  void undo();
  /// "what it has printed is in a, b", or nothing.
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> renamed_;
};

}  // namespace yoke::slurm
