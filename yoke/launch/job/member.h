// yoke/launch/job/member.h -- a node as the head of a job knows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "yoke/launch/job/job.h"
#include "yoke/launch/node/local_node.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/node/remote_node.h"

namespace yoke::launch {

struct Member {
  std::unique_ptr<Node> node;
  RemoteNode* remote = nullptr;  ///< The same, unless it is this machine.
  LocalNode* local = nullptr;    ///< The same, if it is.
  size_t host_index = 0;         ///< In NodesSpec::hosts, if it was started there.
  NodeInfo info;
  bool is_ready = false;
  bool is_lost = false;
  int leaves_with = -1;  ///< The exit status that a node is given which is not to take part any more; -1: it stays.
  bool has_only_store = false;  ///< Its ranks have ended, and it serves the ranks' store.
  bool has_processes = false;   ///< Of this start.
  bool takes_part = false;      ///< In this start; it has processes, or what they printed is not all here.
  std::set<int64_t> ranks;      ///< Of this start.

  std::string name() const { return remote == nullptr ? "the head" : info.host; }
  Node::Time last_heard() const { return remote == nullptr ? Node::Time::max() : remote->last_heard(); }
};

using Members = std::map<int, Member>;  ///< By their numbers in the Membership.

Members::iterator find_member(Members& members, const Node& node);
int64_t num_lost(const Members& members);
bool takes_any_part(const Members& members);  ///< One of them, in this start.
bool has_processes(const Members& members);
/// Whether ranks of other hosts than its own do not find the store at `address`: it is a host's for itself.
bool is_out_of_reach(const std::string& address, const Members& members, const std::vector<int>& chosen);
std::string describe(const Members& members);  ///< "a, b": those that are ready; "none".

/// The member that serves the ranks' store and is now alone with it: it may end. Null while ranks run anywhere.
Member* last_with_store(Members& members);

/// Describes the ranks of this start for those who ask (`yoke jobs`). `is_shown_here`: what another host's ranks print
/// comes to this screen; else to their own.
void add_ranks(Job& job, const Member& member, const Place& place, const LaunchSpec& spec, bool is_shown_here);

/// When to try again to start an agent on each of some hosts, and what has been said about it.
class HostTries {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit HostTries(size_t num_hosts) : hosts_(num_hosts) {}

  /// Whether host `index` may be tried now; if so, it may be tried next after a pause that doubles each time.
  bool take(size_t index, Time now);
  /// Whether its failure is still to be told: once for each time that it was there.
  bool take_complaint(size_t index);
  void forget(size_t index) { hosts_[index] = {}; }  ///< It is there.

 private:
  struct Host {
    Time next;
    std::chrono::seconds pause{1};
    bool has_said = false;
  };
  std::vector<Host> hosts_;
};

}  // namespace yoke::launch
