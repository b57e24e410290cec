#include "yoke/keep/detail/keeping.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "yoke/base/text.h"
#include "yoke/device/process/info.h"

namespace yoke::keep {

ClaimEnd::ClaimEnd(const claim::Claim& claim) : claim_(claim), until_(claim.note().until) {
  // An heir comes later than the claim's begin.
  const auto begin = claim.is_shared() ? std::chrono::system_clock::now() : claim.note().since;
  if (until_) end_ = Clock::now() + (*until_ - begin);
}

bool ClaimEnd::is_over() {
  if (Clock::now() < end_) return false;
  const auto now = claim_.read().until;
  if (!now || *now <= *until_) return true;
  end_ += *now - *until_;
  until_ = now;
  return Clock::now() >= end_;
}

int ClaimEnd::milliseconds_left() const {
  constexpr int64_t kMinute = 60'000;
  if (end_ == Clock::time_point::max()) return kMinute;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMinute));
}

int sooner(int a, int b) { return a < 0 || b < 0 ? std::max(a, b) : std::min(a, b); }

bool is_for_us(const program::SignalMessages::Message& message) {
  return message.is_from_process || (message.signal == SIGHUP && getsid(0) == getpid());
}

void leave_terminal(const char* name) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.value(), stream);
  [[maybe_unused]] const int changed = chdir("/");
  prctl(PR_SET_NAME, name);
  prctl(PR_SET_PDEATHSIG, 0);
}

void tell_everywhere(const Tell& tell, const std::string& text) {
  tell(Told::kNews, text);
  tell(Told::kElsewhere, text);
}

std::string by_whom(const program::SignalMessages::Message& message) {
  if (!message.is_from_process || message.sender == geteuid()) return "";
  return " by " + printable(device::user_name(int64_t{message.sender}));
}

}  // namespace yoke::keep
