// yoke/launch/spec.h -- what to launch, as the user said it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::launch {

/// Which ranks' lines begin with "[rank] ". One rank alone has no prefix and writes straight to the launcher's output.
enum class Prefix { kAllRanks, kAllButRankZero, kNone };

/// One node, one attempt. Several nodes, restarts and a wrapper of argv (a container) will be fields here.
struct LaunchSpec {
  std::string name = "yoke run";  ///< Who speaks in messages.
  std::vector<std::string> argv;  ///< Program and arguments; `${local_rank}` in them becomes the local rank.
  Environment environment;        ///< What every rank starts from.
  int64_t num_ranks = 1;
  std::chrono::milliseconds grace{10'000};  ///< Between asking ranks to stop and killing them.
  std::optional<uint16_t> master_port;      ///< Unset: a free port.
  Prefix prefix = Prefix::kAllRanks;
  std::vector<int> inherited_fds;  ///< Kept open in every rank, under the same numbers.
};

}  // namespace yoke::launch
