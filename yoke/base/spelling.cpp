#include "yoke/base/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace yoke {

size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kMostInWord || b.size() > kMostInWord) return kMostInWord;
  std::array<std::array<size_t, kMostInWord + 1>, kMostInWord + 1> cost;
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({replace, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = 0;
  for (const auto& candidate : candidates) {
    const auto here = edit_distance(word, candidate);
    const auto allowed = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (here <= allowed && here < candidate.size() && (!best || here < best_distance)) {
      best = candidate;
      best_distance = here;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const auto meant = nearest(word, candidates);
  return meant ? fmt::format(" (did you mean `{}`?)", *meant) : "";
}

}  // namespace yoke
