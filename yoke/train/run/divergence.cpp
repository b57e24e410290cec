#include "yoke/train/run/detail/divergence.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>

namespace yoke::train::detail {
namespace {

bool differs(const ReplicatedTensor& tensor) {
  return std::ranges::any_of(tensor.hashes, [&](const auto& of) { return of.second != tensor.hashes.front().second; });
}

std::string ranks_text(std::vector<int64_t> ranks, const std::vector<int64_t>& names) {
  for (auto& rank : ranks) rank = names[static_cast<size_t>(rank)];
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Some are no tensors of the state, and have a sentence's words as their name.
bool is_phrase(const ReplicatedTensor& tensor) { return tensor.is_option && tensor.name.find('/') == tensor.name.npos; }

std::string quoted(const ReplicatedTensor& tensor) {
  return is_phrase(tensor) ? tensor.name : fmt::format("'{}'", tensor.name);
}

/// "lr of group 0 of 'optimizer'", "the limit of the last clip_grad_norm", or "element 3 of 'model/bias'".
std::string element_text(const ReplicatedTensor& tensor, size_t element) {
  if (is_phrase(tensor)) return tensor.name;
  const auto slash = tensor.name.find('/');
  if (!tensor.is_option || slash == tensor.name.npos) return fmt::format("element {} of '{}'", element, tensor.name);
  return fmt::format("{} of group {} of '{}'", tensor.name.substr(slash + 1), element, tensor.name.substr(0, slash));
}

/// What each rank has in the first element that differs: "0.1 on rank 2, and 0.01 on ranks 0, 1, 3".
std::string values_text(const Divergence& divergence, const ReplicatedTensor& tensor,
                        const std::vector<std::vector<double>>& values, const std::vector<int64_t>& names) {
  const auto of = [&](int64_t rank) -> const std::vector<double>& { return values[static_cast<size_t>(rank)]; };
  auto ranks = divergence.ranks;
  ranks.insert(ranks.end(), divergence.others.begin(), divergence.others.end());
  size_t num_elements = SIZE_MAX;
  for (const auto rank : ranks) num_elements = std::min(num_elements, of(rank).size());
  for (size_t i = 0; i < num_elements; ++i) {
    std::vector<std::pair<double, std::vector<int64_t>>> by_value;
    for (const auto rank : ranks) {
      const auto same = [&](const auto& item) {
        return std::bit_cast<uint64_t>(item.first) == std::bit_cast<uint64_t>(of(rank)[i]);
      };
      const auto found = std::ranges::find_if(by_value, same);
      (found == by_value.end() ? by_value.emplace_back(of(rank)[i], std::vector<int64_t>()) : *found)
          .second.push_back(rank);
    }
    if (by_value.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [value, with] : by_value) parts.push_back(fmt::format("{} on {}", value, ranks_text(with, names)));
    return fmt::format("{} is {}", element_text(tensor, i), fmt::join(parts, ", and "));
  }
  return {};
}

}  // namespace

std::optional<Divergence> find_divergence(const std::vector<ReplicatedTensor>& tensors) {
  Divergence result;
  std::vector<size_t> differing;
  for (const bool options : {true, false}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].is_option == options && differs(tensors[i])) differing.push_back(i);
    }
  }
  if (differing.empty()) return std::nullopt;
  result.tensor = differing.front();
  result.more.assign(differing.begin() + 1, differing.end());
  std::map<int64_t, int64_t> counts;
  const auto& hashes = tensors[result.tensor].hashes;
  for (const auto& [_, hash] : hashes) ++counts[hash];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; });
  const bool is_tie = std::ranges::count(counts, most->second, [](const auto& item) { return item.second; }) > 1;
  for (const auto& [rank, hash] : hashes) {
    (is_tie || hash == most->first ? result.others : result.ranks).push_back(rank);
  }
  return result;
}

std::string describe_divergence(const Divergence& divergence, const std::vector<ReplicatedTensor>& tensors,
                                const std::vector<std::vector<double>>& values, const std::vector<int64_t>& names) {
  const auto& tensor = tensors[divergence.tensor];
  const auto shown = values_text(divergence, tensor, values, names);
  const auto what = shown.empty() ? quoted(tensor) : shown;
  auto text =
      divergence.ranks.empty()
          ? fmt::format("{} differ, so nobody knows which is right: {}", ranks_text(divergence.others, names), what)
          : fmt::format("{} differ{} from {}: {}", ranks_text(divergence.ranks, names),
                        divergence.ranks.size() == 1 ? "s" : "", ranks_text(divergence.others, names), what);
  if (shown.empty()) text += " has other bits";
  if (divergence.more.empty()) return text;
  return text + fmt::format(". Also different: {}{}", quoted(tensors[divergence.more.front()]),
                            divergence.more.size() == 1 ? "" : fmt::format(" and {} more", divergence.more.size() - 1));
}

}  // namespace yoke::train::detail
