#include "yoke/launch/plan/restart_limit.h"

#include <fmt/format.h>

#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

constexpr int64_t kMaxRestarts = 1'000'000, kMaxSteps = 1'000'000'000'000;

int64_t number_in(std::string_view text, int64_t least, int64_t most, const std::string& whole) {
  const auto number = parse_int(text);
  if (number && *number >= least && *number <= most) return *number;
  throw Error(ErrorCode::kInvalidArgument,
              "--max-restarts {}: it takes a number from 0 to {}, or also the steps within which they count, such as "
              "3/1000steps",
              whole, kMaxRestarts);
}

}  // namespace

RestartLimit parse_restart_limit(const std::string& text) {
  std::string_view rest = text;
  const auto slash = rest.find('/');
  const auto num = number_in(rest.substr(0, slash), 0, kMaxRestarts, text);
  if (slash == std::string_view::npos) return {num};
  rest.remove_prefix(slash + 1);
  for (const std::string_view unit : {"steps", "step"}) {
    if (!rest.ends_with(unit)) continue;
    rest.remove_suffix(unit.size());
    break;
  }
  return {num, number_in(rest, 1, kMaxSteps, text)};
}

std::string to_text(const RestartLimit& limit) {
  return limit.follows_progress() ? fmt::format("{}/{}steps", limit.num, limit.num_steps)
                                  : fmt::format("{}", limit.num);
}

std::string describe_restart(int64_t number, const RestartLimit& limit) {
  if (!limit.follows_progress()) return fmt::format("restart {} of {}", number, limit.num);
  return fmt::format("restart {}, of at most {} within {} steps", number, limit.num, limit.num_steps);
}

}  // namespace yoke::launch
