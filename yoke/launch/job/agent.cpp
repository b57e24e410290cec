#include "yoke/launch/job/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/job/launcher.h"
#include "yoke/launch/node/local_node.h"
#include "yoke/launch/node/rendezvous.h"
#include "yoke/launch/node/wire.h"
#include "yoke/launch/output/failure_report.h"

namespace yoke::launch {
namespace {

using nlohmann::json;
using Kind = NodeEvent::Kind;
/// The head tells the last line of a rank that has failed.
constexpr int64_t kMaxLastLineColumns = 4000;
/// How many bytes of each stream may be sent before the head has acknowledged them.
constexpr int64_t kMaxUnacknowledgedBytes = 1 << 20;
/// How long, beyond the grace period, the head may take to answer an agent's request to end the job.
constexpr std::chrono::seconds kHeadPatience{5};
constexpr std::chrono::seconds kDrain{1};
constexpr std::chrono::seconds kLongestTurnOfAgent{1};

/// Returns the address at which the head reached this host. A resident agent (cluster/resident.h) sets
/// YOKE_NODE_ADDRESS; SSH_CONNECTION is "CLIENT PORT SERVER PORT".
std::string address_of_host() {
  if (const char* const address = std::getenv(variable::kNodeAddress); address != nullptr) return address;
  const char* const connection = std::getenv("SSH_CONNECTION");
  if (connection == nullptr) return "";
  const std::string text = connection;
  const auto second = text.find(' ', text.find(' ') + 1);
  if (second == text.npos) return "";
  const auto end = text.find(' ', second + 1);
  return text.substr(second + 1, end - second - 1);
}

class Agent : public Launcher {
 public:
  Agent(const LaunchSpec& spec, NodeInfo info, bool has_screen)
      : Launcher(spec), info_(std::move(info)), node_(spec, has_screen, *this) {
    open(has_screen);
    if (node_.run_folder().empty() || spec.quiet) return;
    const auto text = fmt::format("logs are in {}", node_.run_folder());
    if (screen_) {
      say(text);
    } else {
      notices_.push_back(fmt::format("{}: {}", info_.host, text));
    }
  }

  enum class Outcome { kEnded, kLost, kCut };

  /// Returns when the job is over or the head is lost. By then no rank is running.
  Outcome serve(Channel& head) {
    head_ = &head;
    outcome_.reset();
    std::fill(std::begin(unacknowledged_), std::end(unacknowledged_), 0);
    tell({.kind = Kind::kReady, .info = info_});
    info_.is_return = true;  // used in the next connection, if this one is cut
    for (const auto& text : notices_) tell({.kind = Kind::kNotice, .text = text});
    notices_.clear();
    while (!outcome_) step();
    if (has_grace()) {
      node_.tell_ranks(Order::kSignal, SIGTERM);
      kill_at_ = loop_.now() + spec_.grace;
      while (is_running_ && !has_ended_ && loop_.now() < *kill_at_) step();
      kill_at_.reset();
    }
    node_.tell_ranks(Order::kKill, 0);
    // Waits for the ranks and for their output. If a signal told the agent to end, it waits only for the ranks, because
    // the reader of the output may have stopped reading.
    while (is_running_ && !(has_ended_ && stop_signal_ != 0)) step();
    head_ = nullptr;
    return *outcome_;
  }

  /// Handles signals and `yoke` commands while no head is connected. Returns whether a signal asked the agent to end.
  bool wait_alone(std::chrono::milliseconds limit) {
    turn({}, limit);
    return stop_signal_ != 0;
  }
  int stop_signal() const { return stop_signal_; }
  int exit_code() const { return exit_code_with_output(exit_code_); }
  using Launcher::say;

  /// Waits until the reader of this agent's own output has taken what ranks have printed.
  void finish_screen() {
    const auto until = loop_.now() + kDrain;
    while (screen_ && screen_->is_waiting() && (stop_signal_ == 0 || loop_.now() < until)) step();
    if (screen_ && outcome_ == Outcome::kEnded) screen_->settle();
  }

  void on_event(Node&, const NodeEvent& event) override {
    note(event);
    if (event.kind == Kind::kExited) facts_.wait_statuses[event.rank] = event.value;
    if (event.kind == Kind::kReport && event.report) facts_.reports.insert_or_assign(event.rank, *event.report);
    if (event.kind == Kind::kEnded) has_ended_ = true;
    const bool has_not_started = event.kind == Kind::kRefused && event.rank < 0;
    if (event.kind == Kind::kDone || has_not_started) is_running_ = false;
    if (event.kind == Kind::kNotice && screen_) return say(event.text);
    if (event.kind != Kind::kReport || !screen_) return tell(event);
    auto seen = event;  // on this screen alone
    seen.last_line = fit(screen_->last_line(event.rank), kMaxLastLineColumns);
    tell(seen);
  }

  void on_output(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) override {
    if (screen_) return screen_->show(rank, is_err, bytes);
    json message = {{"rank", rank}, {"err", is_err}, {"output", nullptr}};
    if (bytes) {
      message["output"] = *bytes;
      unacknowledged_[is_err ? 1 : 0] += static_cast<int64_t>(bytes->size());
    }
    if (!outcome_) head_->send(message);
  }

  bool has_room(bool is_err) const override {
    if (screen_) return screen_->has_room(is_err);
    return outcome_ || unacknowledged_[is_err ? 1 : 0] < kMaxUnacknowledgedBytes;
  }

 private:
  /// Whether the ranks may save their work after the head was lost. Not where the job may go on without this node: its
  /// ranks would be there twice. That is so in an elastic job and with spares, and an agent over ssh may be started
  /// again while this one still waits for its ranks.
  bool has_grace() const {
    const bool is_over_ssh = screen_ == nullptr;
    return outcome_ != Outcome::kEnded && is_running_ && !give_up_at_ && !may_go_on_elsewhere_ &&
           info_.num_spares == 0 && !(is_over_ssh && spec_.restarts.num > 0);
  }

  bool has_head() const { return head_ != nullptr && !outcome_; }

  void tell(const NodeEvent& event) {
    if (has_head()) head_->send({{"event", to_json(event)}});
  }

  void step() {
    std::vector<EventSource*> sources = {&node_};
    if (has_head()) sources.push_back(head_);
    turn(sources, kLongestTurnOfAgent);
    if (has_head()) receive();
    if (give_up_at_ && loop_.now() >= *give_up_at_ && !outcome_) {
      say("the head node does not answer; ending this node's ranks");
      outcome_ = Outcome::kLost;
    }
  }

  void add_to(WaitSet& waits) override {
    Launcher::add_to(waits);
    if (!outcome_) waits.until(give_up_at_);
    waits.until(kill_at_);
  }

  std::vector<Node*> nodes() override { return {&node_}; }

  void on_signal(const Signal& signal) override {
    const auto& ends = spec_.stop_signals;
    if (std::ranges::find(ends, signal.number) != ends.end()) return ask_to_end(signal.number);
    node_.tell_ranks(Order::kForward, signal.number);
  }

  void on_stop(StopHow how) override {
    if (how == StopHow::kNow && kill_at_) kill_at_ = loop_.now();
    ask_to_end(SIGTERM);
  }

  /// Forwards the signal to the head, which decides what to do.
  void ask_to_end(int signal) {
    stop_signal_ = signal;
    job_.is_stopping = true;
    if (kill_at_) {  // the head is gone, and the ranks have been asked
      if (signal == SIGINT) kill_at_ = loop_.now();
      return;
    }
    tell({.kind = Kind::kSignal, .value = signal});
    if (!give_up_at_) give_up_at_ = loop_.now() + spec_.grace + kHeadPatience;
  }

  void receive() {
    try {
      while (const auto message = head_->receive()) {
        obey(*message);
        if (outcome_) return;
      }
    } catch (const std::exception& error) {  // catches exceptions of the JSON library too
      say(fmt::format("lost the head node: {}", error.what()));
      outcome_ = Outcome::kLost;
      return;
    }
    if (!head_->end()) return;
    // What the head said may not have arrived on a machine that was suspended.
    const bool is_given_up =
        head_->given_up_after().has_value() || (!head_->was_silent() && was_held_up(head_->silence()));
    if (is_given_up && was_held_up()) {
      say(fmt::format("this launcher (pid {}) {}, so the head node gave this host up", getpid(),
                      describe(*loop_.stall())));
    } else {
      say(fmt::format("lost the head node: {}", *head_->end()));
    }
    outcome_ = head_->was_silent() || is_given_up ? Outcome::kCut : Outcome::kLost;
  }

  void obey(const json& message) {
    if (const auto one = message.find("prepare"); one != message.end()) {
      const uint16_t port = one->at("port");
      node_.prepare(one->at("address"), port == 0 ? std::nullopt : std::optional(port), one->at("or_any"));
    } else if (const auto place = message.find("start"); place != message.end()) {
      start(to_place(*place));
    } else if (const auto order = message.find("order"); order != message.end()) {
      node_.tell_ranks(Order{order->get<int>()}, message.at("signal"));
    } else if (const auto rank = message.find("replace"); rank != message.end()) {
      node_.replace(*rank, {.pid = message.at("pid"), .number = message.at("number")});
    } else if (const auto ack = message.find("ack"); ack != message.end()) {
      unacknowledged_[message.at("err").get<bool>() ? 1 : 0] -= ack->get<int64_t>();
    } else if (const auto end = message.find("end"); end != message.end()) {
      exit_code_ = end->at("exit_code");
      const std::string reason = end->at("reason");
      if (screen_) screen_->settle();    // the reason is the last line
      if (screen_ && exit_code_ != 0) {  // without a screen (over ssh), the variable names the head's file
        const auto failed = facts_.reports.empty() ? std::nullopt : std::optional(failed_rank(facts_));
        leave_error_file(spec_, failed, reason, [this](const auto& text) { say(text); });
      }
      if (!reason.empty() && screen_) screen_->say(reason);
      outcome_ = Outcome::kEnded;
    }
  }

  void start(const NodePlace& place) {
    for (int64_t local_rank = 0; screen_ && local_rank < spec_.num_ranks; ++local_rank) {
      screen_->add_rank(place.first_rank + local_rank, prefix_of(spec_, place, local_rank, host_name()));
    }
    is_running_ = true;
    may_go_on_elsewhere_ = place.is_elastic || place.has_spares;
    job_.world_size = place.world_size == spec_.num_ranks ? 0 : place.world_size;
    has_ended_ = false;
    facts_ = {};
    node_.start(place);
    auto plans = node_.plans();
    std::erase_if(plans, [](const RankPlan& rank) { return rank.is_store; });
    job_.begin_attempt(plans, place.restart_count);
  }

  NodeInfo info_;
  FailureFacts facts_;  ///< The failures of this node's ranks.
  LocalNode node_;
  Channel* head_ = nullptr;
  bool is_running_ = false;  ///< True while ranks run, or some of their output was not read yet.
  bool has_ended_ = false;   ///< All ranks have ended.
  std::optional<Outcome> outcome_;
  int exit_code_ = 0;
  int stop_signal_ = 0;
  std::optional<LoopTime> give_up_at_;
  std::optional<LoopTime> kill_at_;  ///< When the ranks are killed, after the head was lost.
  bool may_go_on_elsewhere_ = false;
  int64_t unacknowledged_[2] = {0, 0};  ///< Bytes sent of standard output, and of standard error.
  std::vector<std::string> notices_;
};

NodeInfo info_of(const LaunchSpec& spec) {
  return {.host = host_name(), .num_ranks = spec.num_ranks, .role = spec.role, .replacements = spec.replacements};
}

}  // namespace

int serve_head(const LaunchSpec& spec, Channel& channel) {
  check_file_limit(spec);
  auto info = info_of(spec);
  info.address = address_of_host();
  Agent agent(spec, std::move(info), false);
  const auto outcome = agent.serve(channel);
  channel.flush(kDrain);
  return outcome == Agent::Outcome::kEnded ? agent.exit_code() : exit_status(ErrorCode::kUnavailable);
}

int join_job(const LaunchSpec& spec, const NodesSpec& nodes) {
  check_file_limit(spec);
  auto info = info_of(spec);
  info.address = nodes.local_addr;
  info.node_rank = nodes.node_rank;
  info.nnodes = nnodes_of(nodes.membership);
  info.num_spares = nodes.membership.num_spares;
  info.restarts = spec.restarts;
  Agent agent(spec, std::move(info), true);
  const bool may_return = nodes.is_elastic() || spec.restarts.num > 0;
  for (bool is_return = false;; is_return = true) {
    const auto channel = connect_to_head(
        nodes, spec.run_id, is_return, [&](std::chrono::milliseconds limit) { return agent.wait_alone(limit); },
        [&](const std::string& text) {
          if (!spec.quiet) agent.say(text);
        });
    if (!channel) return 128 + agent.stop_signal();
    const auto outcome = agent.serve(*channel);
    agent.finish_screen();
    if (outcome == Agent::Outcome::kEnded) return agent.exit_code();
    if (agent.stop_signal() != 0) return 128 + agent.stop_signal();
    if (outcome == Agent::Outcome::kLost || !may_return) return exit_status(ErrorCode::kUnavailable);
    agent.say("the ranks of this node have ended; joining the job again");
  }
}

}  // namespace yoke::launch
