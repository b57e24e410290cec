#include "yoke/slurm/job/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <tuple>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {
namespace {

/// Renames a file without replacing another one. Returns false with errno.
bool rename_to_new(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  return link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0;  // as on NFS, which lacks RENAME_NOREPLACE
}

}  // namespace

void require_plain_folder(const std::filesystem::path& folder, std::string_view advice) {
  if (folder.string().find_first_of("%\\\n") == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the folder {} has a %, \\ or line end in its name, which Slurm replaces in the paths of outputs; {}",
              printable(folder.string()), advice);
}

std::optional<std::filesystem::path> missing_output_folder(const std::filesystem::path& pattern,
                                                           const std::filesystem::path& folder) {
  const auto parent = pattern.parent_path();
  if (parent.empty() || parent.string().find_first_of("%\\$") != std::string::npos) return std::nullopt;
  std::error_code error;
  if (std::filesystem::is_directory(folder / parent, error)) return std::nullopt;
  // Nodes may have folders that are not here, but not in a folder that is.
  const bool may_be_elsewhere = parent.is_absolute() && !std::filesystem::exists(parent.parent_path(), error);
  return may_be_elsewhere ? std::nullopt : std::optional(parent);
}

std::optional<RankOutput> parse_rank_output(std::string_view path) {
  constexpr std::string_view kBegin = "slurm-", kEnd = ".out";
  auto name = base_name(path);
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() < kBegin.size() + kEnd.size()) {
    return std::nullopt;
  }
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  const auto dash = name.find('-');
  if (dash == name.npos) return std::nullopt;
  const auto job = parse_job_name(name.substr(0, dash));
  auto rank = name.substr(dash + 1);
  const bool is_node = rank.starts_with("node");
  if (!job || to_text(*job) != name.substr(0, dash) || (!is_node && !rank.starts_with("rank"))) return std::nullopt;
  rank.remove_prefix(4);
  const auto index = parse_int(rank);
  if (!index || *index < 0 || std::to_string(*index) != rank) return std::nullopt;
  return RankOutput{.path = std::string(path), .job_id = to_text(*job), .is_node = is_node, .index = *index};
}

std::string to_text(const RankOutput& output) {
  return fmt::format("{} {}", output.is_node ? "node" : "rank", output.index);
}

std::vector<RankOutput> rank_outputs(const std::filesystem::path& folder, const std::string& job_id) {
  std::vector<RankOutput> outputs;
  for (const auto& file : entries_of(folder)) {
    if (auto output = parse_rank_output(file.string()); output && output->job_id == job_id) {
      outputs.push_back(std::move(*output));
    }
  }
  std::ranges::sort(outputs, {}, [](const RankOutput& one) { return std::tuple(one.is_node, one.index); });
  return outputs;
}

std::vector<std::string> kept_outputs(const std::string& path) {
  constexpr int kMostKept = 1000;
  std::vector<std::string> kept;
  for (int i = 0; i < kMostKept; ++i) {
    auto name = fmt::format("{}.{}", path, i);
    if (access(name.c_str(), F_OK) != 0) break;
    kept.push_back(std::move(name));
  }
  return kept;
}

void KeptOutputs::keep(const std::string& path) {
  struct stat status {};
  if (path.empty() || lstat(path.c_str(), &status) != 0 || S_ISCHR(status.st_mode)) return;  // such as /dev/null
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    throw Error(ErrorCode::kPermissionDenied,
                "Slurm would truncate {}, which is no regular file of yours, so it cannot be kept; move it first",
                printable(path));
  }
  for (int i = 0; i < 1000; ++i) {
    const auto kept = fmt::format("{}.{}", path, i);
    if (rename_to_new(path, kept)) {
      renamed_.emplace_back(path, kept);
      return;
    }
    if (errno != EEXIST) break;
  }
  const int error = errno;
  throw system_error(error, "Slurm would truncate " + printable(path) + ", but it cannot be renamed");
}

void KeptOutputs::undo() {
  for (const auto& [path, kept] : renamed_) rename_to_new(kept, path);
  renamed_.clear();
}

std::string KeptOutputs::text() const {
  std::string names;
  for (const auto& [_, kept] : renamed_) names += (names.empty() ? "" : ", ") + printable(kept);
  return names.empty() ? "" : "what it has printed is in " + names;
}

}  // namespace yoke::slurm
