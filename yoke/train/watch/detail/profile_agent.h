// yoke/train/watch/detail/profile_agent.h -- lets `yoke profile` record steps of this process while it runs.
#pragma once

#include <memory>

#include "yoke/train/watch/step_end.h"

namespace yoke::train::detail {

/// Returns the observer that answers `yoke profile`; null if YOKE_PROFILE is "off". The observer has no thread: at the
/// end of a step, at most every 5 ms, it checks for requests with one system call that does not wait. A forked child
/// does not answer.
std::unique_ptr<StepObserver> make_profile_agent();

}  // namespace yoke::train::detail
