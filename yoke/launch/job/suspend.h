// yoke/launch/job/suspend.h -- Ctrl-Z: the job stops as a whole, and goes on as a whole.
#pragma once

#include "yoke/launch/node/local_node.h"
#include "yoke/launch/output/screen.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {

/// Stops the ranks of this machine and this process, as `signal` asks, and returns when it was continued, and they
/// were. Null: no ranks here; nothing is shown here. REQUIRES: is_job_control(signal.number).
void suspend(const Signal& signal, LocalNode* node, Screen* screen);

}  // namespace yoke::launch
