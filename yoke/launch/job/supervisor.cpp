#include "yoke/launch/job/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/error_file.h"
#include "yoke/base/format.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/launch/job/agent.h"
#include "yoke/launch/job/group.h"
#include "yoke/launch/job/job_server.h"
#include "yoke/launch/job/member.h"
#include "yoke/launch/job/own_error_file.h"
#include "yoke/launch/job/status_line.h"
#include "yoke/launch/job/suspend.h"
#include "yoke/launch/node/earliest.h"
#include "yoke/launch/node/local_node.h"
#include "yoke/launch/node/remote_node.h"
#include "yoke/launch/node/rendezvous.h"
#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/output/screen.h"
#include "yoke/launch/process/signals.h"

namespace yoke::launch {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = NodeEvent::Kind;
/// How long what is already printed may wait for its reader after the user asked to stop.
constexpr std::chrono::seconds kDrainAfterStop{1};
constexpr std::chrono::seconds kStatusEvery{1};
/// After so long without a start, people are told what is being waited for.
constexpr std::chrono::seconds kSayMissingAfter{2};
constexpr std::chrono::milliseconds kFarewell{1000};
/// Beside the numbers of members.
constexpr int kHeadItself = -1;
/// For the last lines to reach those who follow them (`yoke logs -f`).
constexpr std::chrono::milliseconds kLastLines{1000};

class Head : public NodeObserver {
 public:
  /// `listener`: where nodes come by themselves; else null.
  Head(const LaunchSpec& spec, const NodesSpec& nodes, const nlohmann::json& launch, std::unique_ptr<Listener> listener)
      : spec_(spec),
        nodes_(nodes),
        launch_(launch),
        group_({.name = spec.name,
                .num_ranks = spec.num_ranks,
                .grace = spec.grace,
                .max_restarts = spec.max_restarts,
                .stop_signals = spec.stop_signals}),
        membership_(nodes.membership, Clock::now()),
        signals_(take_signals(spec.stop_signals)),
        listener_(std::move(listener)),
        tries_(nodes.hosts.size()),
        job_(describe_job(spec)) {
    if (nodes.hosts.empty()) add_this_machine();
    if (nodes.is_several()) raise_file_limit();
    screen_ = std::make_unique<Screen>(spec.name, spec.color, spec.environment);
    job_server_ = std::make_unique<JobServer>(job_, screen_->recent_lines(),
                                              [this](StopHow how) { stop(group_.on_stop(how, Clock::now())); });
  }

  int run() {
    if (local_ != nullptr && !spec_.quiet) {
      if (spec_.bind.kind != BindMode::Kind::kAuto) {
        for (const auto& warning : local_->binding().warnings) say(warning);
      }
      if (!local_->run_folder().empty()) say(fmt::format("logs are in {}", printable(local_->run_folder())));
    }
    // One rank alone has the terminal to itself.
    has_status_ = screen_->has_status_line() && !spec_.quiet && (spec_.num_ranks > 1 || nodes_.is_several());
    while (gather()) {
      run_ranks();
      const auto notice = group_.begin_again();
      if (!notice) break;
      if (!spec_.quiet) screen_->say(*notice);
      is_gathering_again_ = true;
      failed_.reset();
    }
    has_status_ = false;
    screen_->show_status("");
    screen_->flush();
    screen_->settle();
    const auto reason = group_.reason();
    if (exit_code() != 0) {
      leave_error_file(spec_, failed_, reason, [this](const auto& text) { say(text); });
      terminal_modes_.restore();  // a rank that was killed could not
    }
    if (!reason.empty()) screen_->say(reason);
    for (auto& [id, member] : members_) {
      if (member.remote != nullptr) member.remote->end(exit_code(), reason);
    }
    while (screen_->is_waiting() && !is_drain_over()) step();
    screen_->settle();
    for (auto& [id, member] : members_) {
      if (member.remote != nullptr) member.remote->flush(kFarewell);
    }
    job_server_->finish(kLastLines);
    return exit_code();
  }

  void on_event(Node& node, const NodeEvent& event) override {
    const auto found = find_member(members_, node);
    if (found == members_.end()) return;
    auto& [id, member] = *found;
    const auto now = Clock::now();
    switch (event.kind) {
      case Kind::kReady: return welcome(id, member, *event.info);
      case Kind::kPrepared:
        if (&member == preparing_) master_port_ = static_cast<uint16_t>(event.value);
        return;
      case Kind::kRefused:
        if (!member.takes_part && (nodes_.is_elastic() || is_gathering_again_)) {
          return say(name_of(member) + printable(event.text));  // no business of those that run
        }
        member.takes_part = member.has_processes = false;
        return carry_out(group_.on_refused(event.value, name_of(member) + printable(event.text), now));
      case Kind::kStarted: job_.on_started(event.rank, event.pid); return carry_out(group_.on_started(event.rank));
      case Kind::kExited:
        job_.on_exited(event.rank, event.value);
        facts_.wait_statuses[event.rank] = event.value;
        read_signals();  // Ctrl-C goes to the terminal's rank and to us: the cause first
        return carry_out(group_.on_exited(event.rank, event.pid, event.value, now));
      case Kind::kCannotRun:
        return carry_out(group_.on_cannot_run(event.rank, printable(event.text), event.value, now));
      case Kind::kCannotStart: return carry_out(group_.on_cannot_start(event.rank, event.value, now));
      case Kind::kStoreEnded: return carry_out(group_.on_store_ended(event.pid, host_of(member), event.value, now));
      case Kind::kLeftBehind: return carry_out(group_.on_left_behind(event.pid, host_of(member)));
      case Kind::kGuardianLost: return on_guardian_lost(id, member, event.pid);
      case Kind::kOnlyStore: member.has_only_store = true; return;
      case Kind::kReport:
        if (event.report) facts_.reports.emplace(event.rank, *event.report);
        if (!event.text.empty()) facts_.logs[event.rank] = (member.remote ? member.info.host + ":" : "") + event.text;
        return;
      case Kind::kEnded:
        member.has_processes = member.has_only_store = false;
        if (job_.is_stopping && !has_processes(members_)) drain_until_ = Clock::now() + kDrainAfterStop;
        return;
      case Kind::kDone: member.takes_part = false; return;
      case Kind::kSignal: return on_node_signal(id, member, event.value);
      case Kind::kNotice:
        if (event.value != 0) screen_->note_loss();
        return say(name_of(member) + printable(event.text));
      case Kind::kLost: return on_lost(id, member, event.text);
    }
  }

  void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) override {
    screen_->show(rank, is_err, bytes);
  }

  bool has_room(bool is_err) const override { return screen_->has_room(is_err); }

 private:
  void say(const std::string& text) { screen_->say(fmt::format("{}: {}", spec_.name, text)); }

  /// " on b", where there are several.
  std::string host_of(const Member& member) const {
    return nodes_.is_several() ? " on " + printable(member.info.host) : "";
  }

  static std::string name_of(const Member& member) {
    return member.remote == nullptr ? "" : printable(member.info.host) + ": ";
  }

  Member& add_member(std::unique_ptr<Node> node) {
    auto& member = members_[++last_id_];
    member.node = std::move(node);
    return member;
  }

  void add_this_machine() {
    auto node = std::make_unique<LocalNode>(spec_, true, *this);
    local_ = node.get();
    auto& member = add_member(std::move(node));
    member.local = local_;
    NodeInfo info{
        .num_ranks = spec_.num_ranks, .node_rank = nodes_.node_rank, .has_store = !spec_.store_program.empty()};
    info.address = nodes_.local_addr.empty() ? nodes_.endpoint_host : nodes_.local_addr;
    if (nodes_.is_several()) info.host = "this host";
    welcome(last_id_, member, info);
  }

  void welcome(int id, Member& member, const NodeInfo& info) {
    if (member.is_ready) return;
    const auto name_before = member.info.host;
    member.info = info;
    if (!name_before.empty()) member.info.host = name_before;  // as the user calls it
    if (!nodes_.hosts.empty()) {
      member.info.node_rank = static_cast<int64_t>(member.host_index);
      tries_.forget(member.host_index);
    }
    member.is_ready = true;
    if (const auto ours = nnodes_of(nodes_.membership); !info.nnodes.empty() && info.nnodes != ours) {
      return refuse(id, member,
                    fmt::format("it was started with --nnodes {}, and the head with {}", info.nnodes, ours));
    }
    if (info.max_restarts != 0 && info.max_restarts != spec_.max_restarts) {
      return refuse(id, member,
                    fmt::format("it was started with --max-restarts {}, and the head with {}", info.max_restarts,
                                spec_.max_restarts));
    }
    membership_.add(id, member.info.node_rank, Clock::now());
  }

  /// The job goes on without it.
  void refuse(int id, Member& member, const std::string& why) {
    say(fmt::format("refused host {}: {}", printable(member.info.host), why));
    dismiss(id, member, exit_status(ErrorCode::kPermissionDenied),
            fmt::format("{}: the head of the job refuses this node: {}", spec_.name, why));
  }

  void refuse_rivals() {
    for (const auto& [id, holder, rank] :
         membership_.find_rivals([this](int one) { return members_.at(one).last_heard(); })) {
      auto& member = members_.at(id);
      if (member.info.is_return) continue;  // what was on its way when it was cut off may come only now
      refuse(id, member, fmt::format("--node-rank {} is taken by {}", rank, printable(members_.at(holder).name())));
    }
  }

  // Nodes come together.

  /// False: the job is over before it began, and the group knows why.
  bool gather() {
    const auto began = Clock::now();
    bool has_said = spec_.quiet || !nodes_.is_several();
    membership_.wait_for_next(began, is_gathering_again_);
    while (true) {
      forget_lost();
      const auto now = Clock::now();
      if (group_.exit_code() != 0) return false;  // a signal, or a host that cannot be reached
      if (membership_.judge(now) == Membership::Verdict::kStart) return true;
      if (membership_.judge(now) == Membership::Verdict::kTooFew) {
        const auto& options = membership_.options();
        group_.on_refused(exit_status(ErrorCode::kTimeout),
                          fmt::format("{} of at least {} nodes have come within {}: {}", membership_.choose().size(),
                                      options.min_nodes, format_duration(options.join_timeout), describe(members_)),
                          now);
        return false;
      }
      reach_hosts();
      if (!has_said && now >= began + kSayMissingAfter) {
        say(fmt::format("waiting for {} nodes, {} {} here: {}", describe_number(nodes_.membership),
                        membership_.num_nodes(), membership_.num_nodes() == 1 ? "is" : "are", describe(members_)));
        has_said = true;
      }
      step();
    }
  }

  /// Starts agents on hosts that have none.
  void reach_hosts() {
    for (size_t i = 0; i < nodes_.hosts.size(); ++i) {
      const bool is_there = std::any_of(members_.begin(), members_.end(),
                                        [i](const auto& entry) { return entry.second.host_index == i; });
      if (is_there || !tries_.take(i, Clock::now())) continue;
      try {
        start_agent(i);
      } catch (const Error& error) {  // out of processes or descriptors: for the moment, maybe
        say_unreachable(i, error.what());
      }
    }
  }

  void start_agent(size_t index) {
    const auto& host = nodes_.hosts[index];
    auto launch = launch_;
    if (host.num_ranks) launch["num_ranks"] = *host.num_ranks;
    auto node = std::make_unique<RemoteNode>(host.start_agent(), launch, nodes_.silence, host.name, *this);
    auto* const remote = node.get();
    auto& member = add_member(std::move(node));
    member.remote = remote;
    member.host_index = index;
    member.info.host = host.name;
  }

  void say_unreachable(size_t index, const std::string& why) {
    if (tries_.take_complaint(index) && !spec_.quiet) {
      say(fmt::format("cannot use host {}, and try again: {}", nodes_.hosts[index].name, printable(why)));
    }
  }

  void accept_nodes(size_t first) {
    std::vector<std::string> complaints;
    for (auto& arrival : listener_->handle(polls_, first, complaints)) {
      auto node = std::make_unique<RemoteNode>(std::move(arrival.channel), arrival.address, *this);
      auto* const remote = node.get();
      add_member(std::move(node)).remote = remote;
    }
    for (const auto& complaint : complaints) say(complaint);
    refuse_rivals();
  }

  void on_lost(int id, Member& member, const std::string& why) {
    const bool was_ready = member.is_ready;
    member.is_lost = true;
    member.has_processes = false;
    membership_.remove(id);
    const auto now = Clock::now();
    const auto text = fmt::format("lost host {}: {}", printable(member.info.host), printable(why));
    if (member.takes_part) {
      member.takes_part = false;
      carry_out(group_.on_node_lost(text, member.ranks, nodes_.is_elastic() || member.leaves_with >= 0, now));
    } else if (was_ready) {
      if (!spec_.quiet && member.leaves_with < 0) say(text);
    } else if (nodes_.hosts.empty()) {
      return;
    } else if (is_gathering_again_ || !too_few_hosts_left()) {
      say_unreachable(member.host_index, why);
    } else {
      carry_out(group_.on_refused(exit_status(ErrorCode::kUnavailable),
                                  fmt::format("cannot use host {}: {}", printable(member.info.host), printable(why)),
                                  now));
    }
  }

  bool too_few_hosts_left() const {
    return static_cast<int64_t>(nodes_.hosts.size()) - num_lost(members_) < nodes_.membership.min_nodes;
  }

  /// The launcher of another node was told to end: one of an elastic job may go, otherwise the job ends.
  void on_node_signal(int id, Member& member, int signal) {
    const auto now = Clock::now();
    if (member.leaves_with >= 0) return;
    // A spare that waits while others run is missed by nobody.
    const bool may_go =
        (!member.takes_part && has_processes(members_)) ||
        (nodes_.is_elastic() && !group_.is_ending() && membership_.num_nodes() - 1 >= nodes_.membership.min_nodes);
    if (!may_go) return stop(group_.on_signal(signal, now, id));
    dismiss(id, member, 128 + signal);
    if (!member.takes_part) return;
    carry_out(group_.on_node_leaving(
        fmt::format("host {} leaves ({})", printable(member.info.host), signal_name(signal)), signal, now));
  }

  /// A node without its guardian can start nothing more. One of an elastic job is like a lost one; one that waits is
  /// missed by nobody.
  void on_guardian_lost(int id, Member& member, int pid) {
    if (member.remote == nullptr || (member.takes_part && !nodes_.is_elastic())) {
      return carry_out(group_.on_guardian_lost(pid, host_of(member)));
    }
    const auto text = fmt::format("the guardian process (pid {}{}) was killed", pid, host_of(member));
    const bool took_part = member.takes_part;
    dismiss(id, member, exit_status(ErrorCode::kUnavailable));
    if (took_part) return carry_out(group_.on_node_lost(text, {}, true, Clock::now()));
    if (!spec_.quiet) say(text);
  }

  /// From now on it is no node of the job; it ends when its ranks have.
  void dismiss(int id, Member& member, int exit_code, const std::string& why = "") {
    member.leaves_with = exit_code;
    membership_.remove(id);
    if (!member.takes_part) member.remote->end(exit_code, why);
  }

  void end_dismissed() {
    for (auto& [id, member] : members_) {
      if (member.leaves_with >= 0 && !member.is_lost) member.remote->end(member.leaves_with, "");
    }
  }

  /// The program that serves the ranks' store ends after the ranks of all nodes.
  void release_store() {
    Member* const store = last_with_store(members_);
    if (store == nullptr) return;
    store->has_only_store = false;
    store->node->order(Order::kEndStore, 0);
  }

  void forget_lost() {
    std::erase_if(members_, [](const auto& entry) { return entry.second.is_lost; });
  }

  // Ranks run.

  void run_ranks() {
    facts_ = {};
    const auto chosen = membership_.choose();
    auto& first = members_.at(chosen.front());
    const auto address = nodes_.master_addr.value_or(nodes_.is_several() ? first.info.address : spec_.master_addr);
    Place place{.num_nodes = static_cast<int64_t>(chosen.size()),
                .world_size = 0,
                .restart_count = group_.num_starts(),
                .master_addr = address,
                .agent_serves_store = nodes_.is_several() && first.info.has_store,
                .is_elastic = nodes_.is_elastic()};
    std::vector<std::string> hosts;
    for (const int id : chosen) {
      auto& member = members_.at(id);
      member.ranks.clear();
      for (int64_t i = 0; i < member.info.num_ranks; ++i) member.ranks.insert(place.world_size++);
      if (nodes_.is_several()) hosts.insert(hosts.end(), member.ranks.size(), printable(member.info.host));
    }
    group_.begin(place.world_size, hosts);
    job_.num_ranks = place.world_size;
    job_.begin_attempt({}, group_.num_starts());
    if (is_out_of_reach(address, members_, chosen)) {
      group_.on_refused(exit_status(ErrorCode::kInvalidArgument),
                        fmt::format("rank 0 would serve the ranks' store at {}, where ranks of other hosts do not find "
                                    "it; name its host by another address, or give --master-addr",
                                    address),
                        Clock::now());
      return;
    }

    if (!prepare(chosen, first, address)) return end_dismissed();
    place.master_port = *master_port_;

    for (const int id : chosen) {
      auto& member = members_.at(id);
      if (group_.exit_code() != 0) break;  // a node before this one refused, or was lost
      place.first_rank = *member.ranks.begin();
      if (member.remote == nullptr || !nodes_.hosts.empty()) {
        for (const auto rank : member.ranks) {
          screen_->add_rank(rank, prefix_of(spec_, place, rank - place.first_rank));
        }
      }
      member.takes_part = member.has_processes = true;
      member.node->start(place);
      add_ranks(job_, member, place, spec_, !nodes_.hosts.empty());
      ++place.node_rank;
    }
    while (!is_drain_over() && takes_any_part(members_)) {
      if (nodes_.is_elastic()) {  // for the next start
        forget_lost();
        reach_hosts();
      }
      step();
    }
    end_dismissed();
    report_failure();
    read_signals();  // of the time when nobody was left to be told
  }

  /// False: a node refused, was lost or leaves, and this start is none.
  bool prepare(const std::vector<int>& chosen, Member& first, const std::string& address) {
    for (const int id : chosen) members_.at(id).takes_part = true;
    master_port_.reset();
    preparing_ = &first;
    first.node->prepare(address, spec_.master_port, nodes_.is_several());
    while (!master_port_ && group_.exit_code() == 0) step();
    preparing_ = nullptr;
    for (const int id : chosen) members_.at(id).takes_part = false;
    return group_.exit_code() == 0;
  }

  /// What the user should know beside the reason.
  void report_failure() {
    if (!group_.failure()) return;
    facts_.first_exited = group_.failure()->rank;
    failed_ = failed_rank(facts_);
    failed_->last_lines = screen_->lost_lines(failed_->rank);
    for (const auto& line : describe_failure(spec_.name, *failed_)) screen_->say(line);
  }

  // The loop.

  /// A line at the bottom of a terminal, for jobs that take longer than a moment.
  void show_status() {
    if (!has_status_ || Clock::now() < next_status_) return;
    next_status_ = Clock::now() + kStatusEvery;
    const auto elapsed = std::chrono::floor<std::chrono::seconds>(Clock::now() - began_);
    if (elapsed < kStatusEvery) return;
    screen_->show_status(status_line({.name = spec_.name,
                                      .num_up = group_.num_alive(),
                                      .num_ranks = group_.num_ranks(),
                                      .nodes = nodes_.is_several() ? fmt::format("{} of {}", membership_.num_nodes(),
                                                                                 describe_number(nodes_.membership))
                                                                   : "",
                                      .elapsed = elapsed,
                                      .num_restarts = group_.num_restarts(),
                                      .max_restarts = spec_.max_restarts}));
    screen_->flush();
  }

  /// One turn of the loop: waits for something to happen, and deals with it.
  void step() {
    polls_.clear();
    polls_.push_back({signals_.value(), POLLIN, 0});
    screen_->add_polls(polls_);
    const auto first_of_listener = polls_.size();
    if (listener_) listener_->add_polls(polls_);
    const auto first_of_server = polls_.size();
    job_server_->add_polls(polls_);
    std::vector<std::pair<int, size_t>> first_of;
    for (auto& [id, member] : members_) {
      if (member.is_lost) continue;
      first_of.emplace_back(id, polls_.size());
      member.node->add_polls(polls_);
    }
    poll(polls_.data(), polls_.size(), timeout());
    show_status();
    if (polls_[0].revents != 0) read_signals();
    for (const auto& [id, first] : first_of) {
      if (auto& member = members_.at(id); !member.is_lost) member.node->handle(polls_, first);
    }
    if (listener_) accept_nodes(first_of_listener);
    screen_->flush();
    job_server_->handle(polls_, first_of_server);
    if (const auto time = group_.next_time(); has_processes(members_) && time && Clock::now() >= *time) {
      carry_out(group_.on_time(Clock::now()));
    }
    release_store();
  }

  int timeout() const {
    const auto now = Clock::now();
    Earliest next;
    if (has_processes(members_)) next.take(group_.next_time());
    next.take(drain_until_);
    next.take(screen_->next_time());
    if (has_status_) next.take(next_status_);
    if (listener_) next.take(listener_->next_time());
    for (const auto& [id, member] : members_) {
      if (!member.is_lost) next.take(member.node->next_time());
    }
    if (nodes_.is_several()) next.take(now + kStatusEvery);  // membership, and hosts to be reached again
    return next.milliseconds_from(now, 60'000);
  }

  void read_signals() {
    while (const auto signal = next_signal(signals_)) {
      if (local_ != nullptr) local_->note_signal(*signal);
      const bool is_ctrl_c = signal->is_from_terminal && signal->number == SIGINT;
      if (is_job_control(signal->number)) {
        suspend(*signal, local_, screen_.get());
      } else if (is_ctrl_c && local_ != nullptr && local_->has_keyboard() && group_.leaves_interrupt_to_rank()) {
        carry_out(group_.on_interrupt_of_rank(Clock::now()));
      } else {
        const auto decision = group_.on_signal(signal->number, Clock::now(), kHeadItself);
        decision.order == Order::kForward ? carry_out(decision) : stop(decision);
      }
    }
  }

  void stop(const Group::Decision& decision) {
    job_.is_stopping = true;
    if (!has_processes(members_)) drain_until_ = Clock::now();  // only the reader of our output is being waited for
    carry_out(decision);
  }

  void carry_out(const Group::Decision& decision) {
    if (!decision.notice.empty()) screen_->say(decision.notice);
    if (decision.order == Order::kNone) return;
    for (auto& [id, member] : members_) {
      // Nodes that came by themselves are told by whoever told us (a scheduler signals all of them).
      if (decision.order == Order::kForward && member.remote != nullptr && nodes_.hosts.empty()) continue;
      if (member.takes_part && !member.is_lost) member.node->order(decision.order, decision.signal);
    }
  }

  int exit_code() const { return screen_->exit_code(group_.exit_code()); }

  bool is_drain_over() const { return drain_until_ && Clock::now() >= *drain_until_; }

  const LaunchSpec& spec_;
  const NodesSpec& nodes_;
  const nlohmann::json& launch_;
  Group group_;
  Membership membership_;
  UniqueFd signals_;
  std::unique_ptr<Listener> listener_;  ///< Where nodes come by themselves.
  std::unique_ptr<Screen> screen_;
  HostTries tries_;
  Members members_;
  int last_id_ = -1;
  LocalNode* local_ = nullptr;
  bool is_gathering_again_ = false;
  const Member* preparing_ = nullptr;
  std::optional<uint16_t> master_port_;
  FailureFacts facts_;
  std::optional<FailedRank> failed_;  ///< The cause of the last attempt's end.
  std::optional<Clock::time_point> drain_until_;
  const TerminalModes terminal_modes_{STDIN_FILENO};
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_status_ = began_;
  bool has_status_ = false;
  std::vector<pollfd> polls_;
  Job job_;
  std::unique_ptr<JobServer> job_server_;
};

bool is_head(const NodesSpec& nodes) {
  if (!nodes.is_several() || !nodes.hosts.empty()) return true;
  return nodes.is_head ? *nodes.is_head : is_own_address(nodes.endpoint_host);
}

}  // namespace

int launch(const LaunchSpec& spec, const NodesSpec& nodes, const nlohmann::json& launch) {
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  if (nodes.hosts.empty()) check_file_limit(spec);
  if (!is_head(nodes)) return join_job(spec, nodes);
  std::unique_ptr<Listener> listener;
  try {
    if (nodes.is_several() && nodes.hosts.empty()) listener = std::make_unique<Listener>(nodes, spec.run_id);
  } catch (const Error& error) {
    // Several nodes on the endpoint's own host: the first one there is the head, and refuses another node of its rank.
    if (error.code() != ErrorCode::kUnavailable) throw;
    if (nodes.is_head && !(nodes.node_rank == 0 && has_head(nodes, spec.run_id))) throw;
    return join_job(spec, nodes);
  }
  return Head(spec, nodes, launch, std::move(listener)).run();
}

int launch(const LaunchSpec& spec) { return launch(spec, NodesSpec(), nlohmann::json()); }

}  // namespace yoke::launch
