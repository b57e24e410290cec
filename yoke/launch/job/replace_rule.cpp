#include "yoke/launch/job/replace_rule.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace yoke::launch {

ReplaceRule::Verdict ReplaceRule::judge(const RankLoss& loss) {
  if (limit_ == 0 || !WIFSIGNALED(loss.wait_status)) return {};
  if (!loss.has_survivors) return {.why = "no other rank runs, from which it could have the state"};
  if (loss.some_have_left) return {.why = "another rank has ended with status 0"};
  if (!loss.step) {
    return {.why = "it kept no state of a training then, as train::Run does from the first batch to the last"};
  }
  if (num_replaced_ >= limit_) {
    return {.why = why_none_is_left()};
  }
  if (WTERMSIG(loss.wait_status) != SIGKILL) {
    const Failure failure{loss.rank, *loss.step, loss.wait_status};
    if (std::ranges::find(failures_, failure) != failures_.end()) {
      return {.why = fmt::format("it ended in the same way after step {} before", *loss.step)};
    }
    failures_.push_back(failure);
  }
  ++num_replaced_;
  return {.replaces = true};
}

ReplaceRule::Verdict ReplaceRule::judge(const HostLoss& loss) {
  if (!loss.has_survivors) return {.why = "no other rank runs, from which they could have the state"};
  if (loss.some_have_left) return {.why = "another rank has ended with status 0"};
  if (!loss.keep_state) {
    return {.why = "they kept no state of a training then, as train::Run does from the first batch to the last"};
  }
  if (num_replaced_ + loss.num_ranks > limit_) return {.why = why_none_is_left()};
  num_replaced_ += loss.num_ranks;
  return {.replaces = true};
}

std::string ReplaceRule::why_none_is_left() const {
  if (num_replaced_ < limit_) return fmt::format("only {} of {} replacements are left", limit_ - num_replaced_, limit_);
  return fmt::format("{} {} made already", limit_, limit_ == 1 ? "replacement was" : "replacements were");
}

}  // namespace yoke::launch
