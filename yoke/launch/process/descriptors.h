// yoke/launch/process/descriptors.h -- what a process between launcher and ranks keeps open.
#pragma once

#include <vector>

namespace yoke::launch {

/// Closes all descriptors but `keep` and the three standard streams: who waits for the end of another process's pipe or
/// socket must not have to wait for this one.
void close_all_except(std::vector<int> keep);

}  // namespace yoke::launch
