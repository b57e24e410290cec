// tests/support/kept_state.h -- what shells in place of ranks do under `yoke run --replace`.
#pragma once

#include <string>

namespace yoke::test {

/// Defines a function `made N` of the shell, which reports that this rank has kept a state after N steps, less than
/// 255, as yoke/contract/progress.h says.
inline const std::string kKeepsState =
    R"(made() { printf "\\$(printf %o $(($1 + 1)))\0\0\0\0\0\0\0" > "$YOKE_RANK_STATE.1"; }; )";

}  // namespace yoke::test
