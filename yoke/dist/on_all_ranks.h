// yoke/dist/on_all_ranks.h -- work that succeeds on all ranks of a group or fails on all of them.
#pragma once

#include <functional>
#include <string>

#include "yoke/dist/group.h"

namespace yoke::dist {

/// Collective. Runs `body`. If it throws on one rank, all ranks throw: that rank rethrows the error, and the others
/// throw an error with the same code and a message such as "`what`: rank 1: MESSAGE".
void on_all_ranks(Group& group, const std::string& what, const std::function<void()>& body);

}  // namespace yoke::dist
