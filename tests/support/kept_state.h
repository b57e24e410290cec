// tests/support/kept_state.h -- what shells in place of ranks do under `yoke run --replace`.
#pragma once

#include <string>

namespace yoke::test {

/// Defines a function `made N` of the shell, which reports that this rank has kept a state after N steps, less than
/// 255, as yoke/contract/progress.h says. A shell that ends by itself has come to the end of its training, and keeps it
/// no longer; `trap - EXIT` before that is for one that has not.
inline const std::string kKeepsState =
    R"(trap "rm -f $YOKE_RANK_STATE.[01]" EXIT; made() { printf "\\$(printf %o $(($1 + 1)))\0\0\0\0\0\0\0" > "$YOKE_RANK_STATE.1"; }; )";

}  // namespace yoke::test
