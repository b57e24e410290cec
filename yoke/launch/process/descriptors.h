// yoke/launch/process/descriptors.h -- closes the descriptors that a process between launcher and ranks must not keep.
#pragma once

#include <vector>

namespace yoke::launch {

/// Closes all descriptors except `keep` and the standard streams. An inherited write end of another process's pipe
/// would hide the end of file from the pipe's reader until this process ends.
void close_all_except(std::vector<int> keep);

}  // namespace yoke::launch
