// The functions that handle events. job_phases.cpp has the decisions that follow from the state and the time.
#include "yoke/launch/job/job_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

using Kind = NodeEvent::Kind;
/// After the user asked to stop, how long printed output may wait for its reader.
constexpr std::chrono::seconds kDrainAfterStop{1};
/// The source of a signal to the head itself; other sources are ids of nodes.
constexpr int kHeadItself = -1;

}  // namespace

JobPolicy::JobPolicy(const LaunchSpec& spec, const NodesSpec& nodes, Time now)
    : spec_(spec),
      nodes_(nodes),
      ranks_({.name = spec.name,
              .num_ranks = spec.num_ranks,
              .grace = spec.grace,
              .kernel_sleep_limit = spec.kernel_sleep_limit,
              .restarts = spec.restarts,
              .replacements = spec.replacements,
              .stop_signals = spec.stop_signals}),
      membership_(nodes.membership, now),
      tries_(nodes.hosts.size()),
      gathering_since_(now),
      has_said_missing_(spec.quiet || !nodes.is_several()) {}

int JobPolicy::add_own_node(NodeInfo info, Time now) {
  const int id = add_node();
  auto& member = members_.at(id);
  member.state = MemberState::kWaiting;
  member.is_heads_own = true;
  member.name = nodes_.is_several() ? info.host : "";
  member.hostname = info.host;
  member.info = std::move(info);
  membership_.add(id, member.info.node_rank, now);
  return id;
}

int JobPolicy::add_node() {
  members_[++last_id_] = {};
  return last_id_;
}

int JobPolicy::on_agent_started(size_t host) {
  const int id = add_node();
  auto& member = members_.at(id);
  member.host = host;
  member.name = nodes_.hosts[host].name;
  return id;
}

JobOrders JobPolicy::on_agent_failed(size_t host, const std::string& why) {
  say_unreachable(host, why);
  return take_orders();
}

JobOrders JobPolicy::on_node_event(int id, const NodeEvent& event, Time now) {
  const auto found = members_.find(id);
  if (found == members_.end() || found->second.state == MemberState::kLost) return {};
  auto& member = found->second;
  switch (event.kind) {
    case Kind::kReady: welcome(id, member, *event.info, now); break;
    case Kind::kPrepared:
      if (phase_ == Phase::kPreparing && id == chosen_.front()) master_port_ = static_cast<uint16_t>(event.value);
      break;
    case Kind::kRefused: on_refused(id, member, event, now); break;
    case Kind::kStarted: tell(ranks_.on_started(event.rank, event.pid)); break;
    case Kind::kExited:
      tell(ranks_.on_exited({event.rank, event.pid, event.value, printable(event.text), event.seen_at, event.kept_step},
                            now));
      break;
    case Kind::kCannotRun: tell(ranks_.on_cannot_run(event.rank, printable(event.text), event.value, now)); break;
    case Kind::kCannotStart: tell(ranks_.on_cannot_start(event.rank, event.value, now)); break;
    case Kind::kState: tell(ranks_.on_state(event.rank, static_cast<char>(event.value), now)); break;
    case Kind::kKeeps: ranks_.on_keeps(event.rank, event.value != 0); break;
    case Kind::kStoreEnded: tell(ranks_.on_store_ended(event.pid, on_host(member), event.value, now)); break;
    case Kind::kLeftBehind: tell(ranks_.on_left_behind(event.pid, on_host(member))); break;
    case Kind::kGuardianLost: on_guardian_lost(id, member, event.pid, now); break;
    case Kind::kReport:
      if (event.value != 0) {
        if (event.report) ranks_.on_early_report(event.rank, *event.report);
        break;
      }
      ranks_.on_report(event.rank, {.num_steps = event.num_steps,
                                    .error = event.report,
                                    .log = event.text.empty() ? "" : member.path_of(event.text),
                                    .last_line = event.last_line});
      break;
    case Kind::kOnlyStore:
      if (member.state == MemberState::kRunning) member.state = MemberState::kOnlyStore;
      break;
    case Kind::kEnded: on_ended(member, now); break;
    case Kind::kDone:
      if (member.takes_part()) member.leave_start();
      break;
    case Kind::kSignal: on_node_signal(id, member, event.value, now); break;
    case Kind::kNotice: say(member.notice_prefix() + printable(event.text)); break;
    case Kind::kLost:
      on_lost(id, member, event, now);
      silent_.clear();
      break;
  }
  return take_orders();
}

JobOrders JobPolicy::on_heard(const std::function<Time(int id)>& last_heard) {
  for (const auto& [id, holder, rank] : membership_.find_conflicts(last_heard)) {
    auto& member = members_.at(id);
    if (member.info.is_return) continue;  // the holder may be this node's own old connection, with late messages
    const auto& other = members_.at(holder);
    refuse(id, member,
           fmt::format("--node-rank {} is taken by {}", rank,
                       other.is_heads_own ? "the head node" : printable(other.name)));
  }
  return take_orders();
}

JobOrders JobPolicy::on_signal(int signal, Time now) {
  const auto decision = ranks_.on_signal(signal, now, kHeadItself);
  decision.order == Order::kForward ? tell(decision) : stop(decision, now);
  return take_orders();
}

JobOrders JobPolicy::on_interrupt_at_rank(Time now) {
  if (!ranks_.leaves_interrupt_to_rank()) return on_signal(SIGINT, now);
  tell(ranks_.on_interrupt_of_rank(now));
  return take_orders();
}

JobOrders JobPolicy::on_stop(StopHow how, Time now) {
  stop(ranks_.on_stop(how, now), now);
  return take_orders();
}

void JobPolicy::welcome(int id, Member& member, const NodeInfo& info, Time now) {
  if (member.state != MemberState::kConnecting) return;
  member.state = MemberState::kWaiting;
  member.hostname = info.host;
  member.info = info;
  if (member.host) {
    member.info.host = member.name;  // the name by which the user lists the host
    member.info.node_rank = static_cast<int64_t>(*member.host);
    tries_.forget(*member.host);
  } else {
    member.name = info.host;
  }
  // A host that was lost and returns is the last of the spares.
  const auto num_nodes = nodes_.membership.max_nodes + nodes_.membership.num_spares;
  const bool was_lost = info.is_return || (member.host && lost_hosts_.contains(*member.host));
  if (num_nodes > nodes_.membership.max_nodes && was_lost && member.info.node_rank) *member.info.node_rank += num_nodes;
  // Under srun the number of nodes follows from that of the spares, so this is said first.
  if (const auto ours = nodes_.membership.num_spares; !info.nnodes.empty() && info.num_spares != ours) {
    return refuse(id, member, fmt::format("the node has --spares {}, but the head node has {}", info.num_spares, ours));
  }
  if (const auto ours = nnodes_of(nodes_.membership); !info.nnodes.empty() && info.nnodes != ours) {
    return refuse(id, member, fmt::format("the node has --nnodes {}, but the head node has {}", info.nnodes, ours));
  }
  if (!info.nnodes.empty() && info.restarts != spec_.restarts) {
    return refuse(id, member,
                  fmt::format("the node has --max-restarts {}, but the head node has {}", to_text(info.restarts),
                              to_text(spec_.restarts)));
  }
  if (!info.nnodes.empty() && info.replacements != spec_.replacements) {
    return refuse(
        id, member,
        fmt::format("the node has --replace {}, but the head node has {}", info.replacements, spec_.replacements));
  }
  membership_.add(id, member.info.node_rank, now);
  if (phase_ != Phase::kGathering) judge_spare(id, member);
}

/// Under --replace a spare must have as many ranks as a host whose place it may take. REQUIRES: the hosts of this start
/// are chosen.
void JobPolicy::judge_spare(int id, Member& member) {
  if (spec_.replacements == 0 || nodes_.membership.num_spares == 0 || member.state != MemberState::kWaiting ||
      std::ranges::find(chosen_, id) != chosen_.end()) {
    return;
  }
  std::set<int64_t> of_hosts;
  for (const int other : chosen_) {
    if (const auto found = members_.find(other); found != members_.end()) of_hosts.insert(found->second.info.num_ranks);
  }
  const auto why = why_no_spare(member.info.num_ranks, of_hosts);
  if (why.empty()) return;
  if (!member.host) return refuse(id, member, "it " + why);
  say(fmt::format("the spare host {} {}; it can take a place only when all ranks start again", printable(member.name),
                  why));
}

/// Dismisses the node with a message. The job continues without it.
void JobPolicy::refuse(int id, Member& member, const std::string& why) {
  say(fmt::format("refused host {}: {}", printable(member.name), why));
  dismiss(id, member, exit_status(ErrorCode::kPermissionDenied),
          fmt::format("{}: the head node refuses this node: {}", spec_.name, why));
}

/// Removes the node from the job. The node's launcher ends after its ranks have ended.
void JobPolicy::dismiss(int id, Member& member, int exit_status, const std::string& why) {
  member.leaves_with = exit_status;
  membership_.remove(id);
  if (member.takes_part()) return;
  member.leave_start();
  order(EndNode{id, exit_status, why});
}

void JobPolicy::on_refused(int id, Member& member, const NodeEvent& event, Time now) {
  const auto text = member.notice_prefix() + printable(event.text);
  if (event.rank >= 0) return tell(ranks_.on_refused(event.value, text, now));  // its other ranks still run
  if (member.took_place && member.state == MemberState::kRunning && ranks_.take_back_replacements(member.ranks)) {
    member.state = MemberState::kWaiting;
    dismiss(id, member, event.value, fmt::format("{}: {}", spec_.name, printable(event.text)));
    return on_host_lost(
        id, member,
        fmt::format("the spare host {} cannot start the ranks: {}", printable(member.name), printable(event.text)),
        now);
  }
  // If the job can start without this node, the refusal is only reported to the user.
  if (!member.takes_part() && (nodes_.is_elastic() || is_gathering_again_)) return say(text);
  if (member.takes_part()) member.leave_start();
  tell(ranks_.on_refused(event.value, text, now));
}

void JobPolicy::on_ended(Member& member, Time now) {
  if (member.has_processes()) member.state = MemberState::kDraining;
  if (is_stopping_ && !has_processes(members_)) drain_until_ = now + kDrainAfterStop;
}

void JobPolicy::on_lost(int id, Member& member, const NodeEvent& event, Time now) {
  const auto& why = event.text;
  const auto before = std::exchange(member.state, MemberState::kLost);
  membership_.remove(id);
  if (member.host && before != MemberState::kConnecting) lost_hosts_.insert(*member.host);
  if (phase_ == Phase::kEnding) return;  // the node ends because the job is over
  const bool gave_up = event.value == static_cast<int>(NodeEvent::Loss::kGivenUp);
  const auto text = gave_up ? fmt::format("{}, so host {} gave it up", printable(why), printable(member.name))
                            : fmt::format("lost host {}: {}", printable(member.name), printable(why));
  if (takes_part(before) && gave_up) {
    on_given_up(member, why, now);
  } else if (takes_part(before)) {
    on_host_lost(id, member, text, now);
  } else if (before != MemberState::kConnecting) {
    if (!spec_.quiet && !member.leaves_with) say(text);
  } else if (!member.host) {
    return;
  } else if (is_gathering_again_ || !too_few_hosts_left()) {
    say_unreachable(*member.host, why);
  } else {
    tell(ranks_.on_refused(exit_status(ErrorCode::kUnavailable),
                           fmt::format("cannot use host {}: {}", printable(member.name), printable(why)), now));
  }
}

/// The host has given the head up, and ends its ranks. The head may have been stopped, and then all hosts give it up.
/// So no spare takes the host's place while others run.
void JobPolicy::on_given_up(const Member& member, const std::string& why, Time now) {
  const auto before = std::exchange(why_given_up_, "");
  gave_up_.push_back(printable(member.name));
  const auto last = gave_up_.back();
  why_given_up_ = gave_up_.size() == 1 ? fmt::format("{}, so host {} gave it up", printable(why), last)
                                       : fmt::format("{}, so hosts {} and {} gave it up", printable(why),
                                                     fmt::join(gave_up_.begin(), gave_up_.end() - 1, ", "), last);
  if (!before.empty()) ranks_.replace_cause(before, why_given_up_);
  tell(ranks_.on_node_lost(why_given_up_, member.ranks, nodes_.is_elastic(), now));
}

/// A spare takes the node's place while the others run, if ranks may be replaced. Otherwise all ranks end.
void JobPolicy::on_host_lost(int id, const Member& lost, const std::string& text, Time now) {
  const auto end_all = [&](const std::string& why) {
    auto ranks = lost.ranks;
    for (const int other : silent_) {
      if (const auto& member = members_.at(other); member.takes_part())
        ranks.insert(member.ranks.begin(), member.ranks.end());
    }
    tell(ranks_.on_node_lost(with_silent(id, text) + why, ranks, nodes_.is_elastic(), now));
  };
  if (spec_.replacements == 0 || are_all_silent(id)) return end_all("");
  const auto not_replaced = [&](const char* why) {
    end_all(fmt::format("; {} ranks are not replaced, because {}", silent_.empty() ? "its" : "their", why));
  };
  if (nodes_.membership.num_spares == 0) return not_replaced("what they have kept is on that host");
  const auto chosen = std::ranges::find(chosen_, id);
  const auto node_rank = static_cast<size_t>(chosen - chosen_.begin());
  if (node_rank == 0) return not_replaced("the ranks' store was there, too");
  const auto spare = find_spare(lost);
  if (node_rank >= places_.size()) return end_all("");  // it has not started
  if (!spare) return not_replaced("no spare host with as many ranks is there");
  auto& member = members_.at(*spare);
  auto decision = ranks_.on_host_lost(text, lost.ranks, printable(member.name), now);
  if (decision.first_replacement == 0) return tell(decision);
  if (spec_.quiet) decision.notice.clear();
  tell(decision);
  *chosen = *spare;
  member.ranks = lost.ranks;
  member.state = MemberState::kRunning;
  member.took_place = true;
  auto place = places_[node_rank];
  place.first_replacement = decision.first_replacement;
  order(StartNode{*spare, place});
}

/// Whether this head has heard nothing of any other host: it may be cut off itself. Of a single other host that is not
/// known.
bool JobPolicy::are_all_silent(int lost) const {
  return !silent_.empty() && std::ranges::all_of(members_, [&](const auto& entry) {
    const auto& [id, member] = entry;
    return id == lost || member.is_heads_own || silent_.contains(id) || member.state == MemberState::kConnecting ||
           member.state == MemberState::kLeft || member.state == MemberState::kLost;
  });
}

/// `text`: "lost host b: it sent nothing for 15 s", to which the other hosts are added that are silent, too.
std::string JobPolicy::with_silent(int lost, const std::string& text) const {
  const std::string verb = ": it ";
  const auto at = text.find(verb);
  std::vector<std::string> names;
  for (const auto& [id, member] : members_) {
    if (id == lost || silent_.contains(id)) names.push_back(printable(member.name));
  }
  if (names.size() < 2 || at == text.npos) return text;
  return fmt::format("lost hosts {} and {}: they {}{}", fmt::join(names.begin(), names.end() - 1, ", "), names.back(),
                     text.substr(at + verb.size()),
                     are_all_silent(lost) ? "; all other hosts at once: is this host's network down?" : "");
}

/// A node that waits, with as many ranks as the lost one, to start them in its place.
std::optional<int> JobPolicy::find_spare(const Member& lost) const {
  for (const auto& [id, member] : members_) {
    const auto& info = member.info;
    if (member.state == MemberState::kWaiting && !member.leaves_with && !silent_.contains(id) &&
        std::ranges::find(chosen_, id) == chosen_.end() && info.num_ranks == lost.info.num_ranks &&
        info.role == lost.info.role && info.replacements == spec_.replacements) {
      return id;
    }
  }
  return std::nullopt;
}

bool JobPolicy::too_few_hosts_left() const {
  return static_cast<int64_t>(nodes_.hosts.size()) - num_lost(members_) < nodes_.membership.min_nodes;
}

/// Handles a signal that told a node's launcher to end. The node leaves if the job can continue without it; otherwise
/// the job ends.
void JobPolicy::on_node_signal(int id, Member& member, int signal, Time now) {
  if (member.leaves_with) return;
  const auto who = member.name.empty() ? std::string("a host") : "host " + printable(member.name);
  const auto what = fmt::format("{} received {}", who, signal_name(signal));
  if (!may_leave(member)) return stop(ranks_.on_signal(signal, now, id, what), now);
  dismiss(id, member, 128 + signal);
  if (!member.takes_part()) return;
  tell(ranks_.on_node_leaving(what + " and leaves the job", signal, now));
}

bool JobPolicy::may_leave(const Member& member) const {
  const bool is_spare = !member.takes_part() && has_processes(members_);  // the other nodes do not need it
  return is_spare ||
         (nodes_.is_elastic() && !ranks_.is_ending() && membership_.num_nodes() - 1 >= nodes_.membership.min_nodes);
}

/// A node whose guardian was killed cannot start ranks any more. In an elastic job the node counts as lost. A node that
/// is only waiting is dismissed.
void JobPolicy::on_guardian_lost(int id, Member& member, int pid, Time now) {
  if (member.is_heads_own || (member.takes_part() && !nodes_.is_elastic())) {
    return tell(ranks_.on_guardian_lost(pid, member.ranks, on_host(member), now));
  }
  const auto text =
      fmt::format("the process that starts and watches the ranks (pid {}{}) was killed", pid, on_host(member));
  const bool took_part = member.takes_part();
  dismiss(id, member, exit_status(ErrorCode::kUnavailable));
  if (took_part) {
    tell(ranks_.on_node_lost(text, {}, true, now));
  } else if (!spec_.quiet) {
    say(text);
  }
}

void JobPolicy::say(const std::string& text) { order(Say{fmt::format("{}: {}", spec_.name, text)}); }

void JobPolicy::stop(const RankPolicy::Decision& decision, Time now) {
  is_stopping_ = true;
  if (!has_processes(members_)) drain_until_ = now;  // only the output's reader is waited for
  tell(decision);
}

void JobPolicy::tell(const RankPolicy::Decision& decision) {
  const auto& replaced = decision.replacement;
  if (!decision.notice.empty() && !(replaced && spec_.quiet)) order(Say{decision.notice});
  for (const auto& [id, member] : members_) {
    if (!replaced || !member.takes_part() || !member.ranks.contains(replaced->rank)) continue;
    order(ReplaceRank{id, replaced->rank, replaced->pid, replaced->number});
  }
  if (decision.order == Order::kNone) return;
  for (const auto& [id, member] : members_) {
    // A signal is not forwarded to nodes that connected by themselves: a scheduler signals their launchers directly.
    if (decision.order == Order::kForward && !member.is_heads_own && !member.host) continue;
    if (member.takes_part()) order(TellNode{id, decision.order, decision.signal});
  }
}

JobOrders JobPolicy::take_orders() { return std::exchange(orders_, {}); }

std::string JobPolicy::on_host(const Member& member) const {
  return nodes_.is_several() ? " on " + printable(member.name) : "";
}

}  // namespace yoke::launch
