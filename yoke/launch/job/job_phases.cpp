// The phases of a job: decides what follows from the job's state and the time.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/launch/job/job_policy.h"

namespace yoke::launch {
namespace {

/// If the ranks have not started after this time, the user is told which nodes the job waits for.
constexpr std::chrono::seconds kSayMissingAfter{2};

}  // namespace

JobOrders JobPolicy::decide(Time now, Screen screen) {
  if (const auto time = ranks_.next_time(); has_processes(members_) && time && now >= *time) tell(ranks_.on_time(now));
  auto before = phase_;
  do {
    before = phase_;
    switch (phase_) {
      case Phase::kGathering: gather(now); break;
      case Phase::kPreparing: prepare(now); break;
      case Phase::kStarting: start_next(); break;
      case Phase::kRunning: run(now); break;
      case Phase::kEnding:
        if (screen == Screen::kIsWritten || is_drain_over(now)) phase_ = Phase::kOver;
        break;
      case Phase::kOver: break;
    }
  } while (orders_.empty() && phase_ != before);
  return take_orders();
}

std::optional<JobPolicy::Time> JobPolicy::next_time() const {
  std::optional<Time> next;
  for (const auto& time : {has_processes(members_) ? ranks_.next_time() : std::nullopt, drain_until_, delayed_until_}) {
    if (time) next = std::min(next.value_or(*time), *time);
  }
  return next;
}

void JobPolicy::gather(Time now) {
  forget_lost();
  if (ranks_.exit_code() != 0) return finish();  // a signal, or a host that cannot be used
  if (delayed_until_ && now < *delayed_until_) return;
  delayed_until_.reset();
  const auto verdict = membership_.judge(now);
  if (verdict == Membership::Verdict::kStart) return begin_start(now);
  if (verdict == Membership::Verdict::kTooFew) {
    const auto& options = membership_.options();
    ranks_.on_refused(exit_status(ErrorCode::kTimeout),
                      fmt::format("only {} of at least {} nodes joined within {} ({}{}); start the missing ones, or "
                                  "raise join_timeout in --rdzv-conf",
                                  membership_.choose().size(), options.min_nodes, format_duration(options.join_timeout),
                                  describe(members_), describe_missing(members_, nodes_)),
                      now);
    return finish();
  }
  reach_hosts(now);
  say_missing(now);
}

void JobPolicy::say_missing(Time now) {
  if (has_said_missing_ || now < gathering_since_ + kSayMissingAfter) return;
  has_said_missing_ = true;
  const auto count = membership_.num_nodes();
  const auto num_spares = nodes_.membership.num_spares;
  say(fmt::format("waiting for {} nodes{}, of which {} joined so far: {}{}", describe_number(nodes_.membership),
                  num_spares > 0 ? " and " + counted(num_spares, "spare") : "", count, describe(members_),
                  describe_missing(members_, nodes_)));
}

/// Gives the order to start an agent on each host that has none.
void JobPolicy::reach_hosts(Time now) {
  for (size_t host = 0; host < nodes_.hosts.size(); ++host) {
    const bool is_there =
        std::ranges::any_of(members_, [host](const auto& entry) { return entry.second.host == host; });
    if (!is_there && tries_.take(host, now)) order(StartAgent{host});
  }
}

void JobPolicy::say_unreachable(size_t host, const std::string& why) {
  if (!tries_.take_complaint(host) || spec_.quiet) return;
  say(fmt::format("cannot use host {}: {}; trying again", nodes_.hosts[host].name, printable(why)));
}

void JobPolicy::forget_lost() {
  std::erase_if(members_, [this](const auto& entry) {
    if (entry.second.state != MemberState::kLost) return false;
    order(ForgetNode{entry.first});
    return true;
  });
}

void JobPolicy::say_place_of_spare(const Member& spare, size_t node_rank) {
  if (spec_.quiet) return;
  if (spare.host == node_rank) return say(fmt::format("host {} takes its place again", printable(spare.name)));
  const auto place = node_rank < nodes_.hosts.size() ? "host " + printable(nodes_.hosts[node_rank].name)
                                                     : fmt::format("node {}", node_rank);
  say(fmt::format("the spare host {} takes the place of {}", printable(spare.name), place));
}

/// Chooses the nodes, and assigns every rank a number and a node.
void JobPolicy::begin_start(Time now) {
  chosen_ = membership_.choose();
  const auto& first = members_.at(chosen_.front());
  auto address = nodes_.master_addr.value_or(nodes_.is_several() ? first.info.address : spec_.master_addr);
  // Ranks would try [::1] first, where any user may listen while the store is at 127.0.0.1.
  if (lower_case(address) == "localhost") address = "127.0.0.1";
  place_ = {.num_nodes = static_cast<int64_t>(chosen_.size()),
            .world_size = 0,
            .restart_count = ranks_.num_starts(),
            .master_addr = address,
            .is_elastic = nodes_.is_elastic(),
            .has_spares = spec_.replacements > 0 && nodes_.membership.num_spares > 0 && chosen_.size() > 1};
  places_.clear();
  gave_up_.clear();
  why_given_up_.clear();
  std::vector<std::string> hosts;
  roles_.clear();
  for (size_t node_rank = 0; node_rank < chosen_.size(); ++node_rank) {
    auto& member = members_.at(chosen_[node_rank]);
    if (membership_.is_spare(member.info.node_rank)) say_place_of_spare(member, node_rank);
    roles_[member.info.role].all += member.info.num_ranks;
    member.ranks.clear();
    member.took_place = false;
    for (int64_t i = 0; i < member.info.num_ranks; ++i) member.ranks.insert(place_.world_size++);
    if (nodes_.is_several()) hosts.insert(hosts.end(), member.ranks.size(), printable(member.name));
  }
  for (auto& [id, member] : members_) judge_spare(id, member);
  place_.agent_serves_store = launcher_serves_store(spec_, place_.world_size, nodes_.is_several());
  ranks_.begin(place_.world_size, hosts);
  order(BeginAttempt{place_.world_size, ranks_.num_starts()});
  if (is_out_of_reach(address, members_, chosen_)) {
    ranks_.on_refused(
        exit_status(ErrorCode::kInvalidArgument),
        fmt::format("rank 0's host gives {} as the address of the ranks' TCPStore, which other hosts cannot reach; "
                    "name that host by an address that they reach, or give --master-addr",
                    address),
        now);
    return end_attempt(now);
  }
  for (const int id : chosen_) members_.at(id).state = MemberState::kPreparing;
  master_port_.reset();
  phase_ = Phase::kPreparing;
  order(PrepareNode{chosen_.front(), address});
}

void JobPolicy::prepare(Time now) {
  if (ranks_.exit_code() == 0) {
    if (!master_port_) return;
    place_.master_port = *master_port_;
    phase_ = Phase::kStarting;
    return;
  }
  for (const int id : chosen_) {
    if (auto& member = members_.at(id); member.takes_part()) member.leave_start();
  }
  end_attempt(now);
}

/// Starts one node at a time. If one refuses at once, the nodes after it are not started.
void JobPolicy::start_next() {
  const auto index = static_cast<size_t>(place_.node_rank);
  if (ranks_.exit_code() == 0 && index < chosen_.size()) {
    auto& member = members_.at(chosen_[index]);
    place_.first_rank = *member.ranks.begin();
    auto& role = roles_.at(member.info.role);
    place_.first_role_rank = std::exchange(role.started, role.started + member.info.num_ranks);
    place_.role_world_size = role.all;
    member.state = MemberState::kRunning;
    places_.push_back(place_);
    order(StartNode{chosen_[index], place_});
    ++place_.node_rank;
    return;
  }
  for (auto i = index; i < chosen_.size(); ++i) {
    if (auto& member = members_.at(chosen_[i]); member.takes_part()) member.leave_start();
  }
  phase_ = Phase::kRunning;
}

void JobPolicy::run(Time now) {
  release_store();
  if (!takes_any_part(members_) || is_drain_over(now)) return end_attempt(now);
  if (!nodes_.is_elastic() && nodes_.membership.num_spares == 0) return;
  forget_lost();  // allows agents on the hosts of lost nodes for the next start
  reach_hosts(now);
}

/// The process that serves the ranks' TCPStore must end after the ranks of all nodes.
void JobPolicy::release_store() {
  const auto id = last_with_store(members_);
  if (!id) return;
  members_.at(*id).state = MemberState::kRunning;
  order(TellNode{*id, Order::kEndStore});
}

void JobPolicy::end_attempt(Time now) {
  for (const auto& [id, member] : members_) {
    if (member.leaves_with && member.state != MemberState::kLost) order(EndNode{id, *member.leaves_with, ""});
  }
  if (ranks_.failure()) order(ShowFailure{failed_rank(ranks_.facts())});
  const auto restart = ranks_.begin_again();
  if (!restart) return finish();
  if (!spec_.quiet) order(Say{restart->notice});
  order(ForgetFailure{});
  phase_ = Phase::kGathering;
  gathering_since_ = now + restart->delay;
  if (restart->delay.count() > 0) delayed_until_ = gathering_since_;
  is_gathering_again_ = true;
  has_said_missing_ = spec_.quiet || !nodes_.is_several();
  membership_.wait_for_next(gathering_since_, true);
}

void JobPolicy::finish() {
  phase_ = Phase::kEnding;
  order(Finish{ranks_.reason()});
}

}  // namespace yoke::launch
