// yoke/base/spelling.h -- finds the word that a user probably meant by a misspelt word.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Returns the candidate nearest to `word`, or nullopt if all are further away than a third of the length. The distance
/// is the number of insertions, deletions, replacements and swaps of neighbouring letters.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns " (did you mean `x`?)", or an empty text if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace yoke
