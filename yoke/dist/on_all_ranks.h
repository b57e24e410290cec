// yoke/dist/on_all_ranks.h -- work that ends well on all ranks of a group, or on none.
#pragma once

#include <functional>
#include <string>

#include "yoke/dist/group.h"

namespace yoke::dist {

/// Collective. Runs `body`. Where it throws on one rank all throw: there that error, elsewhere one of its code which
/// says "`what`: rank 1: its message".
void on_all_ranks(Group& group, const std::string& what, const std::function<void()>& body);

}  // namespace yoke::dist
