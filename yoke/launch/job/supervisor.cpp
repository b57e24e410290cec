// The executor in a job's head: carries out the orders of the job policy, and passes events to the policy.
#include "yoke/launch/job/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/launch/job/agent.h"
#include "yoke/launch/job/job_policy.h"
#include "yoke/launch/job/launcher.h"
#include "yoke/launch/job/status_line.h"
#include "yoke/launch/node/endpoint_check.h"
#include "yoke/launch/node/local_node.h"
#include "yoke/launch/node/remote_node.h"
#include "yoke/launch/node/rendezvous.h"
#include "yoke/launch/output/failure_report.h"

namespace yoke::launch {
namespace {

using Kind = NodeEvent::Kind;
using Phase = JobPolicy::Phase;
constexpr std::chrono::seconds kStatusEvery{1};
/// With several nodes, the policy is asked at least this often: it waits for nodes and retries hosts by the clock.
constexpr std::chrono::seconds kLongestTurnOfSeveral{1};
constexpr std::chrono::seconds kLongestTurn{60};
constexpr std::chrono::milliseconds kFarewell{1000};
/// How long clients that follow the job's lines (`yoke logs -f`) may take to read the last lines.
constexpr std::chrono::milliseconds kLastLines{1000};

class Head : public Launcher {
 public:
  /// `listener` accepts nodes that connect by themselves. Null if the head starts all nodes.
  Head(const Launch& launch, const nlohmann::json& for_agents, std::unique_ptr<Listener> listener)
      : Launcher(launch.spec),
        nodes_spec_(launch.nodes),
        for_agents_(for_agents),
        listener_(std::move(listener)),
        policy_(launch.spec, launch.nodes, loop_.now()) {
    if (nodes_spec_.hosts.empty()) add_this_machine();
    // A head has open sockets for each of its nodes. The LocalNode, if there is one, has the old limit for its ranks.
    if (nodes_spec_.is_several()) raise_file_limit();
    open(true);
  }

  int run() {
    for (const auto& line : opening_lines_) say(line);
    if (!spec_.no_replacement.empty()) {
      say(fmt::format("--replace has no effect, because {}; a rank that fails ends all of them", spec_.no_replacement));
    }
    // A single rank writes to the terminal itself, so there is no status line.
    has_status_ = screen_->status_line() != StatusLine::kNone && !spec_.quiet &&
                  (spec_.num_ranks > 1 || nodes_spec_.is_several());
    if (listener_ && !spec_.quiet) {
      endpoint_check_ = std::make_unique<EndpointCheck>(
          nodes_spec_.endpoint_host, nodes_spec_.endpoint_port,
          [this](const std::string& random) { return listener_->has_greeted_with(random); });
    }
    for (follow_policy(); policy_.phase() != Phase::kOver; follow_policy()) {
      turn(sources(), nodes_spec_.is_several() ? kLongestTurnOfSeveral : kLongestTurn);
      if (listener_) accept_nodes();
      doubt_endpoint();
    }
    screen_->settle();
    for (const auto& [id, node] : nodes_) node->flush(kFarewell);
    job_server_->finish(kLastLines);
    return exit_code();
  }

  void on_event(Node& node, const NodeEvent& event) override {
    const auto found = std::ranges::find_if(nodes_, [&](const auto& entry) { return entry.second.get() == &node; });
    if (found == nodes_.end()) return;
    const int id = found->first;
    note(event);
    // Ctrl-C signals both this rank and the launcher. The signal is handled before the exit, because it is the cause.
    if (event.kind == Kind::kExited) read_signals();
    // The loop's time may be out of date: a node whose guardian was killed has just waited for its last process.
    if (event.kind == Kind::kEnded) loop_.read_clock();
    auto seen = event;
    seen.seen_at = std::chrono::system_clock::now();
    if (event.kind == Kind::kReport && seen.last_line.empty()) seen.last_line = screen_->last_line(event.rank);
    if (event.kind == Kind::kLost) look_why_lost(id, seen);
    carry_out(policy_.on_node_event(id, seen, loop_.now()));
  }

  void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) override {
    screen_->show(rank, is_err, bytes);
  }

  bool has_room(bool is_err) const override { return screen_->has_room(is_err); }

 private:
  // The loop.

  std::vector<EventSource*> sources() {
    std::vector<EventSource*> sources;
    for (const auto& [id, node] : nodes_) sources.push_back(node.get());
    if (listener_) sources.push_back(listener_.get());
    if (endpoint_check_) sources.push_back(endpoint_check_.get());
    return sources;
  }

  void add_to(WaitSet& waits) override {
    Launcher::add_to(waits);
    waits.until(policy_.next_time());
    if (has_status_) waits.until(next_status_);
  }

  void handle(LoopTime now) override {
    show_status(now);
    Launcher::handle(now);
    // After a stall, other hosts may have given this one up and ended their ranks, which then ends ranks here. The
    // cause is handled first.
    if (!loop_.has_stalled()) return;
    for (const auto& [id, node] : nodes_) {
      if (!policy_.has(id) || !policy_.member(id).is_heads_own) node->handle(now);
    }
  }

  std::vector<Node*> nodes() override {
    std::vector<Node*> nodes;
    for (const auto& [id, node] : nodes_) nodes.push_back(node.get());
    return nodes;
  }

  /// Shows the job's status at the bottom of a terminal, or its changes in a notebook, once the job has run for a
  /// second.
  void show_status(LoopTime now) {
    if (!has_status_ || now < next_status_) return;
    next_status_ = now + kStatusEvery;
    const auto elapsed = std::chrono::floor<std::chrono::seconds>(now - began_);
    if (elapsed < kStatusEvery) return;
    const auto& ranks = policy_.ranks();
    const auto& membership = policy_.membership();
    const auto& options = membership.options();
    const auto num_nodes =
        options.num_spares > 0 ? fmt::format("{}", options.max_nodes + options.num_spares) : describe_number(options);
    const JobStatus status{
        .name = spec_.name,
        .num_up = ranks.num_alive(),
        .num_ranks = ranks.num_ranks(),
        .nodes = nodes_spec_.is_several() ? fmt::format("{} of {}", membership.num_nodes(), num_nodes) : "",
        .elapsed = elapsed,
        .num_restarts = ranks.num_restarts(),
        .restarts = spec_.restarts};
    if (shown_ && screen_->status_line() == StatusLine::kPrinted && !has_changed(*shown_, status)) return;
    shown_ = status;
    screen_->show_status(status_line(status));
    screen_->flush();
  }

  // Events.

  /// Finds which other nodes are silent when one is lost for that.
  void look_who_is_silent(int lost) {
    // Nodes that were cut off together were heard last within a second. One that is there is heard each second.
    const auto silence = std::max<std::chrono::milliseconds>(
        {nodes_spec_.silence - 2 * Heartbeat::kSayEvery, nodes_spec_.silence / 2, 3 * Heartbeat::kSayEvery / 2});
    std::set<int> ids;
    for (const auto& [id, node] : nodes_) {
      if (id == lost || !policy_.has(id) || policy_.member(id).is_heads_own) continue;
      const auto state = policy_.member(id).state;
      if (state == MemberState::kConnecting || state == MemberState::kLeft || state == MemberState::kLost) continue;
      if (loop_.now() - node->last_heard() >= silence) ids.insert(id);
    }
    policy_.note_silent(std::move(ids));
  }

  /// Says that this launcher was held up, if that is why a node has given it up.
  void look_why_lost(int id, NodeEvent& event) {
    if (event.value == static_cast<int>(NodeEvent::Loss::kSilent)) look_who_is_silent(id);
    // What the node said may not have arrived on a machine that was suspended.
    const bool was_closed = event.value == static_cast<int>(NodeEvent::Loss::kClosed);
    if (was_closed && was_held_up(nodes_spec_.silence)) event.value = static_cast<int>(NodeEvent::Loss::kGivenUp);
    if (event.value != static_cast<int>(NodeEvent::Loss::kGivenUp)) return;
    event.text = was_held_up() ? fmt::format("the head node's launcher (pid {}{}) {}", getpid(),
                                             nodes_spec_.hosts.empty() ? " on " + printable(job_.host) : "",
                                             describe(*loop_.stall()))
                               : "the head node sent nothing that arrived";
  }

  void on_signal(const Signal& signal) override {
    const bool is_ctrl_c = signal.is_from_terminal && signal.number == SIGINT;
    const bool is_for_rank =
        is_ctrl_c && std::ranges::any_of(nodes_, [](const auto& entry) { return entry.second->has_keyboard(); });
    carry_out(is_for_rank ? policy_.on_interrupt_at_rank(loop_.now()) : policy_.on_signal(signal.number, loop_.now()));
  }

  void on_stop(StopHow how) override { carry_out(policy_.on_stop(how, loop_.now())); }

  void accept_nodes() {
    for (auto& arrival : listener_->take_arrivals()) {
      nodes_[policy_.add_node()] = std::make_unique<RemoteNode>(
          to_channel(std::move(arrival.socket), nodes_spec_.silence), arrival.address, *this);
    }
    for (const auto& complaint : listener_->take_complaints()) say(complaint);
    carry_out(policy_.on_heard([this](int id) { return nodes_.at(id)->last_heard(); }));
  }

  /// Says that nodes may look for this head elsewhere, unless one has found it.
  void doubt_endpoint() {
    if (!endpoint_check_) return;
    const auto doubt = endpoint_check_->take_doubt();
    const bool is_alone = policy_.phase() == Phase::kGathering && policy_.membership().num_nodes() < 2;
    if (doubt && is_alone) say(*doubt);
    if (doubt || !is_alone) endpoint_check_.reset();
  }

  void add_this_machine() {
    auto node = std::make_unique<LocalNode>(spec_, true, *this);
    if (!spec_.quiet) {
      if (spec_.bind.kind != BindMode::Kind::kAuto) opening_lines_ = node->binding().warnings;
      if (!node->run_folder().empty()) opening_lines_.push_back("logs are in " + printable(node->run_folder()));
    }
    NodeInfo info{.host = job_.host,
                  .address = nodes_spec_.local_addr.empty() ? nodes_spec_.endpoint_host : nodes_spec_.local_addr,
                  .num_ranks = spec_.num_ranks,
                  .node_rank = nodes_spec_.node_rank,
                  .role = spec_.role};
    nodes_[policy_.add_own_node(std::move(info), loop_.now())] = std::move(node);
  }

  // Orders.

  /// Carries out the policy's orders until there are none left before the next event.
  void follow_policy() {
    read_signals();  // a pending signal must be read before the policy decides about the end of the ranks
    while (true) {
      const auto orders = policy_.decide(
          loop_.now(), screen_->is_waiting() ? JobPolicy::Screen::kIsWaiting : JobPolicy::Screen::kIsWritten);
      if (orders.empty()) return;
      carry_out(orders);
    }
  }

  void carry_out(const JobOrders& orders) {
    job_.is_stopping = policy_.is_stopping();
    for (const auto& order : orders) {
      std::visit([this](const auto& one) { do_it(one); }, order);
    }
  }

  void do_it(const BeginAttempt& order) {
    job_.num_ranks = order.num_ranks;
    job_.begin_attempt({}, order.num_starts);
  }

  void do_it(const PrepareNode& order) {
    nodes_.at(order.node)->prepare(order.address, spec_.master_port, nodes_spec_.is_several());
  }

  void do_it(const StartNode& order) {
    auto& node = *nodes_.at(order.node);
    const auto& member = policy_.member(order.node);
    const auto prefix = [&](int64_t rank) {
      return prefix_of(spec_, order.place, rank - order.place.first_rank, printable(member.hostname));
    };
    if (node.is_shown_here()) {
      for (const auto rank : member.ranks) screen_->add_rank(rank, prefix(rank));
    }
    node.start(order.place);
    for (const auto rank : member.ranks) {
      const auto local_rank = rank - order.place.first_rank;
      const auto streams = node.streams(local_rank);
      std::erase_if(job_.ranks, [&](const JobRank& one) { return one.rank == rank; });  // on a host that was lost
      const auto next = std::ranges::find_if(job_.ranks, [&](const JobRank& one) { return one.rank > rank; });
      job_.ranks.insert(next, {.rank = rank,
                               .local_rank = local_rank,
                               .host = member.info.host,
                               .out = streams.out,
                               .err = streams.err,
                               .prefix = prefix(rank)});
    }
  }

  void do_it(const TellNode& order) { nodes_.at(order.node)->tell_ranks(order.order, order.signal); }
  void do_it(const ReplaceRank& order) {
    nodes_.at(order.node)->replace(order.rank, {.pid = order.pid, .number = order.number});
  }
  void do_it(const EndNode& order) { nodes_.at(order.node)->end(order.exit_status, order.reason); }
  void do_it(const ForgetNode& order) { nodes_.erase(order.node); }
  void do_it(const Say& order) { screen_->say(order.line); }
  void do_it(const ForgetFailure&) { failed_.reset(); }

  void do_it(const StartAgent& order) {
    const auto& host = nodes_spec_.hosts[order.host];
    auto message = for_agents_;
    if (host.num_ranks) message["num_ranks"] = *host.num_ranks;
    try {
      auto node = std::make_unique<RemoteNode>(host.start_agent(), message, nodes_spec_.silence, *this);
      nodes_[policy_.on_agent_started(order.host)] = std::move(node);
    } catch (const Error& error) {  // processes or descriptors may be exhausted for a moment
      carry_out(policy_.on_agent_failed(order.host, error.what()));
    }
  }

  void do_it(const ShowFailure& order) {
    failed_ = order.failed;
    const bool is_on_this_screen = !screen_->last_line(failed_->rank).empty();
    if (is_on_this_screen) failed_->last_lines = screen_->lost_lines(failed_->rank);
    for (const auto& line : describe_failure(spec_.name, *failed_)) screen_->say(line);
    // Python's debugger ends so at the end of its input, which ranks without the keyboard have at once.
    if (failed_->rank != spec_.keyboard_rank && screen_->last_line(failed_->rank).starts_with("bdb.BdbQuit")) {
      say(fmt::format("rank {0} has no keyboard for its debugger; --keyboard {0} gives it the keyboard",
                      failed_->rank));
    }
  }

  void do_it(const Finish& order) {
    has_status_ = false;
    screen_->show_status("");
    screen_->flush();
    screen_->settle();
    if (exit_code() != 0) {
      leave_error_file(spec_, failed_, order.reason, [this](const auto& text) { say(text); });
      terminal_modes_.restore();  // a killed rank could not restore the terminal's modes
    }
    if (!order.reason.empty()) screen_->say(order.reason);
    for (const auto& [id, node] : nodes_) node->end(exit_code(), order.reason);
  }

  int exit_code() const { return exit_code_with_output(policy_.ranks().exit_code()); }

  const NodesSpec& nodes_spec_;
  const nlohmann::json& for_agents_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<EndpointCheck> endpoint_check_;  ///< Of the endpoint, until a node has found it.
  JobPolicy policy_;
  std::map<int, std::unique_ptr<Node>> nodes_;  ///< The keys are the ids that the policy assigned.
  std::vector<std::string> opening_lines_;
  std::optional<FailedRank> failed_;  ///< The rank that made the last attempt fail.
  const TerminalModes terminal_modes_{STDIN_FILENO};
  const LoopTime began_ = loop_.now();
  LoopTime next_status_ = began_;
  bool has_status_ = false;
  std::optional<JobStatus> shown_;  ///< In the status line.
};

bool is_head(const NodesSpec& nodes) {
  if (!nodes.is_several() || !nodes.hosts.empty()) return true;
  return nodes.is_head ? *nodes.is_head : is_own_address(nodes.endpoint_host);
}

}  // namespace

int run_job(const Launch& launch, const nlohmann::json& for_agents) {
  const auto& [spec, nodes] = launch;
  if (spec.argv.empty()) throw Error(ErrorCode::kInvalidArgument, "no program to run");
  if (nodes.hosts.empty()) check_file_limit(spec);
  if (!is_head(nodes)) return join_job(spec, nodes);
  std::unique_ptr<Listener> listener;
  try {
    if (nodes.is_several() && nodes.hosts.empty()) listener = std::make_unique<Listener>(nodes, spec.run_id);
  } catch (const Error& error) {
    // The endpoint's port is taken. If several nodes are on the endpoint's host, the first one is the head, and the
    // others join it. The head refuses a node whose node rank is taken.
    if (error.code() != ErrorCode::kUnavailable) throw;
    if (nodes.is_head && !(nodes.node_rank == 0 && has_head(nodes, spec.run_id))) throw;
    return join_job(spec, nodes);
  }
  return Head(launch, for_agents, std::move(listener)).run();
}

}  // namespace yoke::launch
