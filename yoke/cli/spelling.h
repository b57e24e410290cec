// yoke/cli/spelling.h -- what the user may have meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

/// The candidate that is nearest to `word` by insertions, deletions, replacements and swaps of neighbours, if it is
/// near enough to be meant: a third of its length.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean `x`?)" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace yoke::cli
