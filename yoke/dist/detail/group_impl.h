// yoke/dist/detail/group_impl.h -- the parts of a Group. Only the sources of Group and World include this.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "yoke/contract/rank_env.h"
#include "yoke/dist/arrivals.h"
#include "yoke/dist/detail/call_log.h"
#include "yoke/dist/detail/losses.h"
#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/group.h"

namespace yoke::dist {

/// Key in the store of a job whose lost ranks are replaced: set once all ranks have called World::shutdown().
inline constexpr const char* kEnded = "ended";

/// One group's connections, and how many collectives this rank has entered there.
struct Group::Impl {
  /// The counter of the CPU's backend includes messages between two ranks. These messages are subtracted, because other
  /// ranks do not take part in them.
  uint64_t sequence() const {
    if (!cpu) return 0;  // after shutdown()
    const uint64_t messages =
        num_messages;  // read first: a message is added to num_messages before it is counted there
    uint64_t count = cpu->getSequenceNumberForGroup();
    count -= std::min(count, messages);
    if (backend != cpu) count += backend->getSequenceNumberForGroup();
    return count + num_further_calls;
  }

  std::string key;             ///< Key in the job's store; empty for the World.
  std::vector<int64_t> ranks;  ///< The members as ranks of the World, indexed by their rank in this group.
  int64_t rank = 0;
  std::string name;        ///< In messages: " of the group of ranks 0 and 2"; empty for the World.
  size_t place = 0;        ///< Index of this group in Arrivals.
  int64_t num_splits = 0;  ///< Number of splits so far, the same on all members.
  /// Carries CPU tensors, even if the World's device is a GPU: Gloo, or shared memory.
  c10::intrusive_ptr<c10d::Backend> cpu;
  c10::intrusive_ptr<c10d::Backend> backend;  ///< The backend of the device; on the CPU the same as `cpu`.
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::atomic<uint64_t> num_messages = 0;       ///< The number of messages sent or received on the CPU.
  std::map<std::string, int64_t> num_compared;  ///< Calls of differs_from_first so far, by key.
  std::atomic<uint64_t> num_further_calls = 0;  ///< Collectives that the backend does not count: World::should_stop.
  CallLog calls;                                ///< Empty if this rank is alone.
};

struct Group::Job {
  /// Collective over `impl->ranks`. Connects these ranks.
  void connect(const std::shared_ptr<Impl>& impl);
  /// Makes c10d's group of `impl->cpu`. `own` is the group's part of the store.
  void adopt(const std::shared_ptr<Impl>& impl, const c10::intrusive_ptr<c10d::Store>& own);
  void watch(const std::shared_ptr<Impl>& impl);  ///< Counts its collectives for Arrivals.
  SharedMemoryOptions sharing_of(const Impl& impl) const;
  void keep_connections() const;

  // Ranks that never call World::shutdown() (farewell.cpp).

  /// Of a World that is destroyed without it, though no exception is on its way: tells the others how far it has come.
  void say_farewell(const Impl& world) noexcept;
  bool has_done_all(int64_t rank) const;
  /// Called at the end of the job, now and then while ranks are missing. Returns whether all of those have ended after
  /// the last collective, which is said; then `some_left_early` is true. Throws if one has ended before.
  bool is_over_without_some(const Impl& world);
  bool some_left_early = false;
  int64_t num_ended = 0;  ///< Of those ranks, how many have said nothing.

  /// Whether this process was forked from the rank. It has the rank's memory and connections, and may use neither.
  bool is_forked() const { return num_forks != dist::num_forks(); }
  const uint64_t num_forks = dist::num_forks();

  const int num_exceptions = std::uncaught_exceptions();  ///< Exceptions in flight at construction.
  /// Another rank has ended, so this rank's own end is news to nobody.
  std::atomic<bool> has_lost_rank = false;
  RankEnv env;
  std::chrono::milliseconds timeout{};
  c10::Device device = c10::kCPU;
  std::string gloo_address, link_address;
  std::vector<bool> offers_sharing;  ///< Whether a rank of the World would share memory with ranks of its host.
  c10::intrusive_ptr<c10d::Store> store;
  const std::shared_ptr<EarlierGroups> earlier = std::make_shared<EarlierGroups>();

  // Lost ranks that the launcher starts again (recover.cpp).

  void look_for_replacements();
  void replace_none(const char* why);  ///< Says so.
  /// Throws RanksLost once ranks form the groups again; empty if none is replaced.
  std::function<void()> check_of_generation() const;
  /// The same for the thread of Arrivals, which ends the collectives of this rank then: connections to a host that is
  /// lost may end much later. Empty if no lost host is replaced.
  std::function<void()> watch_of_generation() const;
  /// Throws RanksLost if `failure`, of a collective of `impl`, is due to a lost rank that will be replaced.
  /// `is_closed`: it is that of a connection that another rank has closed, which may have done so because of the lost
  /// one.
  void rethrow_loss(const Impl& impl, const std::exception& failure, bool is_closed);
  /// Collective over `impl.ranks`. Connects them by shared memory alone, because Gloo would wait for a rank that is
  /// lost meanwhile, until the timeout. Errors  that of a connection which is closed, also if the ranks cannot share
  /// memory.
  c10::intrusive_ptr<c10d::Backend> share_without_gloo(c10d::Store& own, const Impl& impl) const;
  at::Tensor share_split(const Impl& impl, const at::Tensor& own, const std::function<at::Tensor()>& gather);
  void leave();  ///< Closes the connections of all groups.
  /// Collective. Connects the groups that all their members have, as that generation. `keys_of_ranks`: those of the
  /// groups of each rank of the World.
  void form_again(int64_t number, const std::vector<std::string>& keys_of_ranks);

  std::shared_ptr<Losses> losses;              ///< Null if lost ranks are not replaced.
  c10::intrusive_ptr<c10d::Store> base_store;  ///< Of all generations; `store` is that of the present one.
  int64_t generation = 0;                      ///< The last replacement after which the groups were formed.
  int64_t replacement = 0;                     ///< The number of the replacement that this process is, if not 0.
  bool is_outside = false;                     ///< This process has not joined the others yet.

  std::vector<std::shared_ptr<Impl>> groups;  ///< All groups so far. Their connections stay open until the job ends.
  std::unique_ptr<Arrivals> arrivals;  ///< Null if this rank is alone. Declared last, because its thread uses `groups`.
};

}  // namespace yoke::dist
