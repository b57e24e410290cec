// yoke/base/hostlist.h -- Slurm's compressed host names: "n[01-03,7],login" is n01, n02, n03, n7, login.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Returns the hosts in order, with zero padding. If a name has several bracket groups, the last one varies fastest.
/// Errors  kInvalidArgument with the text and the position: unbalanced brackets, bad ranges, over 65,536 hosts.
std::vector<std::string> expand_hostlist(std::string_view text);

}  // namespace yoke
