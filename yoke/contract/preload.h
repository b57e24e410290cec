// yoke/contract/preload.h -- the protocol between a launcher's guardian and a program that waits before its main, so
// that ranks can be forked from it. docs/preload.md describes the protocol; its two ends are
// yoke/launch/process/preload.h and yoke/dist/detail/preload.h, or
// tools/python/yoke_preload.py.
//
// Messages over a SOCK_SEQPACKET pair; the program inherits one end under the number in YOKE_PRELOAD_FD:
//   program    a PreloadHello, once it waits; if a text follows it in the message, no ranks can be forked, and the
//              text says why
//   guardian   for each rank one byte, with descriptors: a memory file with encode(RankProcess), standard input,
//              output and error, and those that the rank inherits
//   program    for each rank an int32: its pid, or -errno
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/base/fields.h"

namespace yoke {

/// Sent in the hello, because the guardian and the program may come from different versions of yoke.
inline constexpr uint32_t kPreloadVersion = 3;

struct PreloadHello {
  uint32_t version = kPreloadVersion;
  int32_t num_threads = 0;  ///< Above 1: some code started a thread too early, so the program ends instead of forking.
};

/// The properties of a rank's process, except its program and its standard streams.
struct RankProcess {
  std::vector<std::string> environment;  ///< "NAME=value", complete.
  std::vector<int> inherited_fds;        ///< The rank keeps these numbers.
  CpuSet cpus, memory_nodes;             ///< As in RankPlan (yoke/launch/plan/plan.h).
  int process_group = 0;  ///< The process group, in its parent's session, that the rank joins; 0: a new session.
  rlimit file_limit{};

  bool operator==(const RankProcess& other) const;
};

void encode(const RankProcess& rank, FieldWriter& fields);
/// Errors  kInternal if `fields` does not begin with what encode() wrote.
RankProcess decode_rank_process(FieldReader& fields);

/// The number of descriptors before the inherited ones in a rank's message: the memory file and the standard streams.
inline constexpr size_t kNumPreloadFds = 4;

}  // namespace yoke
