// yoke/launch/process/descriptors.h -- which descriptors a process between the launcher and the ranks keeps open.
#pragma once

#include <vector>

namespace yoke::launch {

/// Closes all descriptors except `keep` and the standard streams. If this process kept the write end of a pipe that it
/// does not need, the reader would see no end of file while this process lives.
void close_all_except(std::vector<int> keep);

}  // namespace yoke::launch
