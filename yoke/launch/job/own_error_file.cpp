#include "yoke/launch/job/own_error_file.h"

#include <fmt/format.h>

#include "yoke/base/text.h"

namespace yoke::launch {

void leave_error_file(const LaunchSpec& spec, const std::optional<FailedRank>& failed, const std::string& reason,
                      const std::function<void(const std::string& text)>& warn) {
  const auto path = spec.environment.value_or("TORCHELASTIC_ERROR_FILE", "");
  if (path.empty()) return;
  const auto why = reason.empty() ? fmt::format("{}: output of the ranks is missing", spec.name) : reason;
  const auto handed_on = hand_on(failed ? &*failed : nullptr, why, std::chrono::system_clock::now());
  try {
    hand_on_error_report(path, handed_on.report, handed_on.error_code);
  } catch (const std::exception& error) {
    warn(fmt::format("TORCHELASTIC_ERROR_FILE cannot be written: {}", printable(error.what())));
  }
}

}  // namespace yoke::launch
