// bench/instructions/count.h -- counts the instructions of a path through yoke, under valgrind's callgrind.
#pragma once

#include <valgrind/callgrind.h>

#include <cstdint>

namespace yoke::bench {

/// Calls `path` twice, so that nothing is done for the first time, and then `times` times while callgrind counts.
/// callgrind writes the count into a file under the path's name, which bench/instructions/run reads: "NAME/TIMES".
template <class Path>
void count(const char* name_and_times, int64_t times, const Path& path) {
  CALLGRIND_START_INSTRUMENTATION;
  for (int64_t i = 0; i < 2; ++i) path();
  CALLGRIND_ZERO_STATS;
  for (int64_t i = 0; i < times; ++i) path();
  CALLGRIND_DUMP_STATS_AT(name_and_times);
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace yoke::bench
