#include "yoke/launch/process/process_states.h"

#include <fmt/format.h>

#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"

namespace yoke::launch {

char state_of_process(pid_t pid) {
  const auto stat = device::parse_process_stat(text_of(fmt::format("/proc/{}/stat", pid)));
  return stat && stat->state != 'Z' && stat->state != 'X' ? stat->state : '\0';
}

std::optional<ProcessStates::Time> ProcessStates::next_time() const {
  return states_.empty() ? std::nullopt : std::optional(next_);
}

std::vector<ProcessStates::Change> ProcessStates::look(Time now) {
  std::vector<Change> result;
  if (states_.empty() || now < next_) return result;
  next_ = now + interval_;
  for (auto& [pid, before] : states_) {
    const char state = read_(pid);
    if (state == 0) continue;  // its end is reported otherwise
    const bool is_same = is_stopped(state) == is_stopped(before) && is_in_kernel(state) == is_in_kernel(before);
    before = state;
    if (!is_same) result.push_back({pid, state});
  }
  return result;
}

std::vector<ProcessStates::Change> ProcessStates::look_at_all() {
  std::vector<Change> result;
  for (auto& [pid, before] : states_) {
    if (const char state = read_(pid); state != 0) result.push_back({pid, before = state});
  }
  return result;
}

}  // namespace yoke::launch
