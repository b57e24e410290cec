// yoke/cli/help/spelling.h -- finds the word that a user may have meant by a misspelt one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

/// The candidate nearest to `word`; the distance is the number of insertions, deletions, replacements and swaps of
/// neighbouring letters. nullopt if the distance to all candidates is more than a third of the length.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean `x`?)", or an empty text.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace yoke::cli
