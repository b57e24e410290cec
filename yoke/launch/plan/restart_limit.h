// yoke/launch/plan/restart_limit.h -- the value of --max-restarts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

/// Parses "3", or "3/1000steps"; "3/1000" is the same. nullopt: it is neither.
std::optional<RestartLimit> parse_restart_limit(std::string_view text);
/// What parse_restart_limit() takes, for messages.
inline constexpr const char* kRestartLimits =
    "give 0 to 1000000, or also the steps of the training within which they count, such as 3/1000steps";

/// Returns the text that parse_restart_limit() reads.
std::string to_text(const RestartLimit& limit);

/// Returns "restart 2 of 3", or "restart 5" if there is no limit in all.
std::string describe_restart(int64_t number, const RestartLimit& limit);

}  // namespace yoke::launch
