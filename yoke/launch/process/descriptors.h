// yoke/launch/process/descriptors.h -- which descriptors a process between the launcher and the ranks keeps open.
#pragma once

#include <vector>

namespace yoke::launch {

/// Closes all descriptors except `keep` and the standard streams. If this process kept the write end of another
/// process's pipe open, the pipe's reader would see no end of file before this process ends.
void close_all_except(std::vector<int> keep);

}  // namespace yoke::launch
