#include "yoke/slurm/outputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <tuple>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job.h"

namespace yoke::slurm {

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
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (auto output = parse_rank_output(at->path().string()); output && output->job_id == job_id) {
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

}  // namespace yoke::slurm
