// yoke/base/hostlist.h -- Slurm's compressed texts: the host names "n[01-03,7],login" are n01, n02, n03, n7, login.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Returns the hosts in order, with zero padding. If a name has several bracket groups, the last one varies fastest.
/// Errors  kInvalidArgument with the text and the position: unbalanced brackets, bad ranges, over 65,536 hosts.
std::vector<std::string> expand_hostlist(std::string_view text);

/// Expands Slurm's numbers for nodes, as in SLURM_TASKS_PER_NODE: "2(x3),1" is 2, 2, 2, 1. Returns an empty vector for
/// a text that is not of this form, or has more than 65,536 numbers.
std::vector<int64_t> expand_counts(std::string_view text);

}  // namespace yoke
