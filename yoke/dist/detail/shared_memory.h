// yoke/dist/detail/shared_memory.h -- a c10d backend for ranks that communicate in memory which those of each host
// share.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace c10d {
class Backend;
struct ReduceOp;
class Store;
}  // namespace c10d

namespace yoke::dist {

struct GroupLosses;

namespace shared {
class Arena;
}

/// What a rank knows from the groups that it has tried to connect before.
struct EarlierGroups {
  std::set<std::string> silent_hosts;  ///< Hosts with which this one has no connection, because one gave no answer.
  bool has_said = false;               ///< This rank has said why a group uses Gloo.
  std::string no_answer = {};          ///< Which rank gave no answer, to whom; empty if all did.
};

/// How often this process, or those that it was forked from, were forked. A process in which it is another number than
/// at the construction of an object was forked from that object's.
uint64_t num_forks();

struct SharedMemoryOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::chrono::milliseconds timeout{};
  bool may_span_hosts = false;  ///< The same on all ranks. Otherwise ranks of several hosts use Gloo.
  std::string address = {};     ///< Where ranks of other hosts reach this one, in digits; empty if that is unknown.
  /// How long ranks try to reach those of other hosts. A firewall that drops packets gives no answer.
  std::chrono::milliseconds connect_limit{10'000};
  std::shared_ptr<EarlierGroups> earlier = {};     ///< Null: nothing is remembered.
  std::shared_ptr<const GroupLosses> losses = {};  ///< Null if lost ranks are not replaced.
  std::function<void()> check =
      {};  ///< Called while ranks wait for each other, to end the wait by an exception; or empty.
};

/// Whether this rank may share memory: YOKE_SHARED_MEMORY is not "0", and the kernel can do what is needed.
bool offers_shared_memory();

/// Collective, of ranks that all offer it. If those of each host can map the same memory, the hosts can be connected,
/// and they are not too many for it, returns a backend whose collectives and messages of CPU tensors use that; the
/// result of `gloo`, which connects the same ranks, does what is rare: sparse tensors, bitwise reductions. Otherwise
/// returns this result on all ranks. `gloo` is called when it is known whether hosts can be connected, and what keeps
/// them from it has been said: Gloo alone finds that out after five times its timeout, and does not say where.
c10::intrusive_ptr<c10d::Backend> share_memory(c10d::Store& store,
                                               const std::function<c10::intrusive_ptr<c10d::Backend>()>& gloo,
                                               const SharedMemoryOptions& options);

/// Closes the connections of a backend that share_memory() has made. Does nothing with another one.
void leave_shared_memory(c10d::Backend& backend);

/// Whether `backend` is one that share_memory() has made.
bool is_shared_memory(const c10d::Backend& backend);

/// The ranks of the group that take part no longer because they have ended, in order; empty of another backend, and of
/// ranks on another host whose connection gives no answer.
std::vector<int64_t> ended_ranks(const c10d::Backend& backend);

/// Whether `rank` of the group needs nothing more of the collectives that this rank has started. False if that is not
/// known, as of a rank on another host.
bool has_consumed_all(const c10d::Backend& backend, int64_t rank);

/// SUM, of which the caller makes a mean. Such a backend tells it from a sum alone, with which other ranks would get
/// another result. Others take it for SUM.
c10d::ReduceOp sum_of_mean();

/// Where tensors of this rank are that other ranks see; null if `backend` is another one or has no place for tensors.
std::shared_ptr<shared::Arena> arena_of(const c10d::Backend& backend);

}  // namespace yoke::dist
