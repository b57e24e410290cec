// yoke/launch/process/descriptors.h -- which descriptors a process between the launcher and the ranks keeps open.
#pragma once

#include <vector>

namespace yoke::launch {

/// Closes all descriptors except `keep` and the standard streams. Otherwise a reader of a pipe or socket that this
/// process holds by chance would wait for the end of this process too.
void close_all_except(std::vector<int> keep);

}  // namespace yoke::launch
