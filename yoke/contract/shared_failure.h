// yoke/contract/shared_failure.h -- an error that all ranks throw alike, though only some of them are to blame.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke {

/// Says that an error whose text has `message` in it is that of `ranks`: they have failed, or differ from the others,
/// and all ranks know it. If such an error ends this process, the launcher names those ranks, whichever ends first.
/// `what`: what they did, to follow "rank 3". In contrast to note_failure_cause(), a program that catches the error may
/// go on.
void note_shared_failure(std::string message, std::vector<int64_t> ranks, std::string what);

}  // namespace yoke
