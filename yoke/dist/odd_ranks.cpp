#include "yoke/dist/odd_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "yoke/contract/shared_failure.h"

namespace yoke::dist {

std::vector<int64_t> odd_ranks(const std::vector<std::string>& values, const std::vector<int64_t>& ranks) {
  std::map<std::string, size_t> counts;
  for (const auto& value : values) ++counts[value];
  const auto common = std::ranges::find_if(counts, [&](const auto& one) { return 2 * one.second > values.size(); });
  std::vector<int64_t> odd;
  for (size_t i = 0; i < values.size(); ++i) {
    if (common == counts.end() || values[i] != common->first) odd.push_back(ranks[i]);
  }
  return odd;
}

void note_odd_ranks(std::string message, const std::vector<std::string>& values, const std::vector<int64_t>& ranks,
                    const std::string& what) {
  auto odd = odd_ranks(values, ranks);
  const bool is_known = odd.size() < values.size();
  const auto text = (odd.size() == 1 ? "differs" : "differ") + std::string(is_known ? " from the others" : "");
  note_shared_failure(std::move(message), std::move(odd), text + " in " + what);
}

}  // namespace yoke::dist
