// yoke/dist/odd_ranks.h -- which ranks differ from most others, and how the launcher is told of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::dist {

/// Pure. The ranks whose value is not that of more than half of them; all ranks if no value is. `ranks` has the rank of
/// each value.
std::vector<int64_t> odd_ranks(const std::vector<std::string>& values, const std::vector<int64_t>& ranks);

/// Says that an error whose text has `message` in it means that these ranks differ in `what`, such as "their options";
/// all ranks throw it. The launcher then names odd_ranks(), whichever rank ends first.
void note_odd_ranks(std::string message, const std::vector<std::string>& values, const std::vector<int64_t>& ranks,
                    const std::string& what);

}  // namespace yoke::dist
