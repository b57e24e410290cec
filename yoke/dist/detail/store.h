// yoke/dist/detail/store.h -- the key-value store through which the ranks of a job find each other.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>

#include "yoke/contract/rank_env.h"

namespace c10d {
class Store;
}

namespace yoke::dist {

/// Connects to the job's TCPStore, served by rank 0 or by the launcher's agent (RankEnv::agent_serves_store). A job of
/// one rank gets a store in memory. The connection, and rank 0's server, last until the process ends. Keys are prefixed
/// by the restart count and by the number of this call. So no rank reads values of an earlier start or an earlier
/// World.
/// Errors  kUnavailable: rank 0's port is taken, or nothing serves it within `timeout`. The message names the address.
c10::intrusive_ptr<c10d::Store> connect_store(const RankEnv& rank, std::chrono::milliseconds timeout);

/// Waits for a key, and calls `check` every few milliseconds meanwhile, which may throw to end the wait.
/// Errors  c10::DistStoreError: the key is not there by `until`.
void wait_for_key(c10d::Store& store, const std::string& key, const std::function<void()>& check,
                  std::chrono::steady_clock::time_point until);

/// While an object of this class exists, libtorch prints no warnings in this process. Used where the store may be lost:
/// yoke prints its own message, and libtorch would print a stack trace before it.
class WithoutWarnings {
 public:
  WithoutWarnings();
  ~WithoutWarnings();
  WithoutWarnings(const WithoutWarnings&) = delete;
  WithoutWarnings& operator=(const WithoutWarnings&) = delete;
};

}  // namespace yoke::dist
