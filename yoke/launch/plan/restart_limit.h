// yoke/launch/plan/restart_limit.h -- the value of --max-restarts.
#pragma once

#include <cstdint>
#include <string>

namespace yoke::launch {

/// How often all ranks may start again after a failure.
struct RestartLimit {
  int64_t num = 0;
  /// If not zero, restarts follow progress (restart_rule.h), and at most `num` of them within this many steps of the
  /// training. Zero: `num` in all, as torchrun's.
  int64_t num_steps = 0;

  bool follows_progress() const { return num_steps != 0; }
  bool operator==(const RestartLimit&) const = default;
};

/// Parses "3", or "3/1000steps"; "3/1000" is the same.
/// Errors  kInvalidArgument, which says what the option takes.
RestartLimit parse_restart_limit(const std::string& text);

/// Returns the text that parse_restart_limit() reads.
std::string to_text(const RestartLimit& limit);

/// Returns "restart 2 of 3", or "restart 5, of at most 3 within 1000 steps".
std::string describe_restart(int64_t number, const RestartLimit& limit);

}  // namespace yoke::launch
