// yoke/dist/detail/store.h -- the key-value store through which the ranks of a job meet.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "yoke/base/rank_env.h"

namespace c10d {
class Store;
}

namespace yoke::dist {

/// The job's TCPStore, served by rank 0 or by the launcher's agent (RankEnv::agent_serves_store); a job of one rank
/// gets a store in memory. The connection lasts as long as the process, rank 0's server too. Keys are prefixed by the
/// restart count and by the number of this call, so that nobody reads what a gang or a World before left there. Errors
/// kUnavailable: the port of rank 0 is taken, or nobody serves it within `timeout`; both name address and port.
c10::intrusive_ptr<c10d::Store> connect_store(const RankEnv& rank, std::chrono::milliseconds timeout);

/// While one lives, libtorch prints no warnings in this process. A store that is gone is an expected end, which is said
/// in words; libtorch would print a trace of frames before that.
class WithoutWarnings {
 public:
  WithoutWarnings();
  ~WithoutWarnings();
  WithoutWarnings(const WithoutWarnings&) = delete;
  WithoutWarnings& operator=(const WithoutWarnings&) = delete;
};

}  // namespace yoke::dist
