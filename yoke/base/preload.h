// yoke/base/preload.h -- what a launcher's guardian and a program that waits before its main tell each other, so that
// ranks are forked from it. docs/preload.md is its page; yoke/launch/process/preload.h and yoke/dist/detail/preload.h
// are the two ends.
//
// Over a SOCK_SEQPACKET pair, whose other end the program inherits under the number in YOKE_PRELOAD_FD:
//   program    PreloadHello, once it waits
//   guardian   for each rank a byte, with descriptors: a memfd that holds encode(PreloadedRank), standard input, output
//              and error, and those that the rank inherits
//   program    for each rank an int32: its pid, or -errno
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/base/file.h"

namespace yoke {

inline constexpr const char* kPreloadVariable = "YOKE_PRELOAD_FD";

/// The two ends may come from two versions of yoke.
inline constexpr uint32_t kPreloadVersion = 2;

struct PreloadHello {
  uint32_t version = kPreloadVersion;
  int32_t num_threads = 0;  ///< Over 1: somebody has begun too early, and the program ends instead of forking.
};

/// What is a rank's own, beyond its descriptors.
struct PreloadedRank {
  std::vector<std::string> environment;  ///< "NAME=value", all of it.
  std::vector<int> inherited_fds;        ///< The numbers that the message's last descriptors are to have.
  CpuSet cpus, memory_nodes;             ///< As RankPlan's.
  int process_group = 0;                 ///< Of the session that the program is in; 0: a session of its own.
  rlimit file_limit{};

  bool operator==(const PreloadedRank& other) const;
};

std::string encode(const PreloadedRank& rank);
/// nullopt: not what `encode` made.
std::optional<PreloadedRank> decode_preloaded_rank(std::string_view bytes);

/// Standard streams and the memfd: descriptors of a rank's message before the inherited ones.
inline constexpr size_t kNumPreloadFds = 4;
/// The kernel's limit for one message (SCM_MAX_FD).
inline constexpr size_t kMaxMessageFds = 253;

/// One byte with `fds`. False when the other end is gone, with errno.
bool send_fds(int socket, const std::vector<int>& fds);
/// Blocks for the next message; the descriptors are close-on-exec. nullopt: the other end is gone.
std::optional<std::vector<UniqueFd>> receive_fds(int socket);

}  // namespace yoke
