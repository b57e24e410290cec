#include "yoke/launch/plan/restart_limit.h"

#include <fmt/format.h>

#include "yoke/base/environment.h"

namespace yoke::launch {

std::optional<RestartLimit> parse_restart_limit(std::string_view text) {
  constexpr int64_t kMostRestarts = 1'000'000, kMostSteps = 1'000'000'000'000;
  const auto slash = text.find('/');
  const auto num = parse_int(text.substr(0, slash));
  if (!num || *num < 0 || *num > kMostRestarts) return std::nullopt;
  if (slash == std::string_view::npos) return RestartLimit{*num};
  auto rest = text.substr(slash + 1);
  for (const std::string_view unit : {"steps", "step"}) {
    if (!rest.ends_with(unit)) continue;
    rest.remove_suffix(unit.size());
    break;
  }
  const auto num_steps = parse_int(rest);
  if (!num_steps || *num_steps < 1 || *num_steps > kMostSteps) return std::nullopt;
  return RestartLimit{*num, *num_steps};
}

std::string to_text(const RestartLimit& limit) {
  return limit.follows_progress() ? fmt::format("{}/{}steps", limit.num, limit.num_steps)
                                  : fmt::format("{}", limit.num);
}

std::string describe_restart(int64_t number, const RestartLimit& limit) {
  return limit.follows_progress() ? fmt::format("restart {}", number)
                                  : fmt::format("restart {} of {}", number, limit.num);
}

}  // namespace yoke::launch
