// yoke/dist/detail/group_impl.h -- what a Group is made of; for the sources of Group and World alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "yoke/base/rank_env.h"
#include "yoke/dist/arrivals.h"
#include "yoke/dist/group.h"

namespace yoke::dist {

/// One group's connections, and how many collectives this rank has entered there.
struct Group::Impl {
  /// Messages between two ranks do not count, for they are not everybody's. Gloo counts them.
  uint64_t sequence() const {
    const uint64_t messages = num_messages;  // first: a message is added here before Gloo counts it
    uint64_t count = gloo->getSequenceNumberForGroup();
    count -= std::min(count, messages);
    if (backend != gloo) count += backend->getSequenceNumberForGroup();
    return count + num_further_calls;
  }

  std::string key;             ///< In the job's store; empty: the World.
  std::vector<int64_t> ranks;  ///< Of the World, by rank here.
  int64_t rank = 0;
  std::string name;                           ///< In messages: " of the group of ranks 0 and 2"; empty: the World.
  size_t place = 0;                           ///< Among the groups of Arrivals.
  int64_t num_splits = 0;                     ///< So far; all members count alike.
  c10::intrusive_ptr<c10d::Backend> gloo;     ///< What lives on the CPU goes through it, whatever the device.
  c10::intrusive_ptr<c10d::Backend> backend;  ///< The one that the device uses; on the CPU the same.
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::atomic<uint64_t> num_messages = 0;       ///< Through Gloo.
  std::atomic<uint64_t> num_further_calls = 0;  ///< Collective, and not the backend's: World::should_stop.
};

struct Group::Job {
  /// Collective, over `impl->ranks`. Connects them.
  void connect(const std::shared_ptr<Impl>& impl);

  const int num_exceptions = std::uncaught_exceptions();  ///< Under way when it was made.
  RankEnv env;
  std::chrono::milliseconds timeout{};
  c10::Device device = c10::kCPU;
  std::string gloo_address;
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<std::shared_ptr<Impl>> groups;  ///< All that were made: a rank that is done leaves others connected.
  std::unique_ptr<Arrivals> arrivals;  ///< Null: this rank is alone. Its thread asks the groups, so it ends first.
};

}  // namespace yoke::dist
