// yoke/base/spelling.h -- finds the word that a user probably meant by a misspelt word.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Returns the number of insertions, deletions, replacements and swaps of neighbouring letters that make `a` to `b`
/// (optimal string alignment), or kMostInWord if one of them is longer than that.
size_t edit_distance(std::string_view a, std::string_view b);
inline constexpr size_t kMostInWord = 64;

/// Returns the candidate nearest to `word` by edit_distance(), or nullopt if all are further away than a third of the
/// length.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns " (did you mean `x`?)", or an empty text if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace yoke
