// yoke/dist/on_all_ranks.h -- work that succeeds on all ranks of a group or fails on all of them.
#pragma once

#include <functional>
#include <string>

#include "yoke/dist/group.h"

namespace yoke::dist {

/// Collective, at the same place of the program on all ranks. Runs `body`. If it throws on one rank, all ranks throw:
/// that rank its error, and the others one with the same code and a message such as "`what`: rank 1: MESSAGE".
/// Errors  kFailedPrecondition: another rank has called something else. `file` and `line` tell calls apart,
///         and stay the caller's: Clang 14 lacks std::source_location.
void on_all_ranks(Group& group, const std::string& what, const std::function<void()>& body,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace yoke::dist
