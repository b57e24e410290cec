// yoke/train/watch/detail/profile_agent.h -- lets `yoke profile` record steps of this process while it runs.
#pragma once

#include <memory>

#include "yoke/train/step_end.h"

namespace yoke::train::detail {

/// The observer that answers `yoke profile`; null if YOKE_PROFILE is "off". It has no thread: it looks for questions at
/// the ends of steps, at most every 5 ms, with one system call that does not wait. A forked child does not answer.
std::unique_ptr<StepObserver> make_profile_agent();

}  // namespace yoke::train::detail
