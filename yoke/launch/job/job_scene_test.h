// yoke/launch/job/job_scene_test.h -- for tests: a job policy, and an executor that only records its orders as text.
#pragma once

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "yoke/base/signal_name.h"
#include "yoke/launch/job/job_policy.h"

namespace yoke::launch {

inline std::string text_of(const BeginAttempt& one) {
  return fmt::format("begin {} after {}", one.num_ranks, one.num_starts);
}
inline std::string text_of(const PrepareNode& one) { return fmt::format("prepare {} at '{}'", one.node, one.address); }
inline std::string text_of(const StartNode& one) {
  const auto& place = one.place;
  const auto role = place.role_world_size == place.world_size
                        ? std::string()
                        : fmt::format(", in its role {} of {}", place.first_role_rank, place.role_world_size);
  const auto replacement =
      place.first_replacement == 0 ? std::string() : fmt::format(", replacement {}", place.first_replacement);
  return fmt::format("start {} as node {} of {}, rank {} of {}{}, port {}{}", one.node, place.node_rank,
                     place.num_nodes, place.first_rank, place.world_size, role, place.master_port, replacement);
}
inline std::string text_of(const TellNode& one) {
  switch (one.order) {
    case Order::kForward: return fmt::format("forward {} to {}", signal_name(one.signal), one.node);
    case Order::kSignal: return fmt::format("{} to {}", signal_name(one.signal), one.node);
    case Order::kKill: return fmt::format("kill {}", one.node);
    case Order::kEndStore: return fmt::format("end store of {}", one.node);
    case Order::kNone: break;
  }
  return "nothing";
}
inline std::string text_of(const ReplaceRank& one) {
  return fmt::format("replace {} (pid {}) of {}, number {}", one.rank, one.pid, one.node, one.number);
}
inline std::string text_of(const EndNode& one) {
  return fmt::format("end {} with {}{}", one.node, one.exit_status, one.reason.empty() ? "" : ": " + one.reason);
}
inline std::string text_of(const ForgetNode& one) { return fmt::format("forget {}", one.node); }
inline std::string text_of(const StartAgent& one) { return fmt::format("start agent {}", one.host); }
inline std::string text_of(const Say& one) { return "say " + one.line; }
inline std::string text_of(const ShowFailure& one) { return fmt::format("show failure of {}", one.failed.rank); }
inline std::string text_of(const ForgetFailure&) { return "forget failure"; }
inline std::string text_of(const Finish& one) { return "finish: " + one.reason; }

inline constexpr std::array<const char*, 8> kMemberStateNames = {"connecting", "waiting",  "preparing", "running",
                                                                 "only store", "draining", "left",      "lost"};
inline constexpr std::array<const char*, 6> kPhaseNames = {"gathering", "preparing", "starting",
                                                           "running",   "ending",    "over"};
inline std::string name_of(MemberState state) { return kMemberStateNames[static_cast<size_t>(state)]; }
inline std::string name_of(JobPolicy::Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
inline std::string text_of(const JobOrder& order) {
  return std::visit([](const auto& one) { return text_of(one); }, order);
}

struct JobSetting {
  int64_t min = 1, max = 1;
  std::vector<std::string> hosts = {};
  RestartLimit restarts;
  int64_t num_ranks = 1;
  bool quiet = false;
  int64_t replacements = 0;
  int64_t spares = 0;
};

/// A job policy, and an executor that only records its orders as text.
class JobScene {
 public:
  explicit JobScene(const JobSetting& setting) {
    spec_.num_ranks = setting.num_ranks;
    spec_.restarts = setting.restarts;
    spec_.quiet = setting.quiet;
    spec_.replacements = setting.replacements;
    nodes_.membership = {.min_nodes = setting.min,
                         .max_nodes = setting.max,
                         .num_spares = setting.spares,
                         .last_call = std::chrono::seconds(30)};
    for (const auto& host : setting.hosts) nodes_.hosts.push_back({.name = host});
    policy_ = std::make_unique<JobPolicy>(spec_, nodes_, now);
    if (setting.hosts.empty()) {
      policy_->add_own_node({.host = "head", .address = "10.0.0.1", .num_ranks = setting.num_ranks}, now);
    }
  }

  JobPolicy& operator*() { return *policy_; }
  JobPolicy* operator->() { return policy_.get(); }

  /// Returns the orders of an event, followed by those of decide().
  std::string take(JobOrders orders) {
    std::string text;
    for (; !orders.empty(); orders = policy_->decide(now, screen)) {
      for (const auto& order : orders) {
        text += (text.empty() ? "" : "; ") + text_of(order);
      }
    }
    return text;
  }
  std::string decide() { return take(policy_->decide(now, screen)); }
  std::string after(JobOrders orders) {
    auto text = take(std::move(orders));
    const auto rest = decide();
    return text + (text.empty() || rest.empty() ? "" : "; ") + rest;
  }
  std::string event(int id, NodeEvent event) { return after(policy_->on_node_event(id, event, now)); }
  std::string lose(int id) { return event(id, {.kind = NodeEvent::Kind::kLost, .text = "it is off"}); }
  std::string exit(int id, int64_t rank, int status) {
    return event(id,
                 {.kind = NodeEvent::Kind::kExited, .rank = rank, .pid = 10 + static_cast<int>(rank), .value = status});
  }
  /// Reports that all processes of the node have ended and their output was read.
  std::string end(int id) {
    const auto text = event(id, {.kind = NodeEvent::Kind::kEnded});
    const auto rest = event(id, {.kind = NodeEvent::Kind::kDone});
    return text + (text.empty() || rest.empty() ? "" : "; ") + rest;
  }
  std::string wait(std::chrono::milliseconds time) {
    now += time;
    return decide();
  }

  static NodeInfo info_of(const std::string& host) { return {.host = host, .address = "10.0.0.9"}; }
  std::string ready(int id, const NodeInfo& info) { return event(id, {.kind = NodeEvent::Kind::kReady, .info = info}); }
  /// Adds a node that connects by itself, and lets it introduce itself.
  int come(const std::string& host) {
    const int id = policy_->add_node();
    auto info = info_of(host);
    info.replacements = spec_.replacements;
    ready(id, info);
    return id;
  }
  std::string prepared(int id) { return event(id, {.kind = NodeEvent::Kind::kPrepared, .value = 4000}); }
  void started(int id, int64_t rank) {
    event(id, {.kind = NodeEvent::Kind::kStarted, .rank = rank, .pid = 10 + static_cast<int>(rank)});
  }

  std::string state(int id) { return policy_->has(id) ? name_of(policy_->member(id).state) : "lost"; }
  JobPolicy::Phase phase() { return policy_->phase(); }
  int exit_code() { return policy_->ranks().exit_code(); }

  JobPolicy::Time now{std::chrono::seconds(1000)};
  JobPolicy::Screen screen = JobPolicy::Screen::kIsWritten;

 private:
  LaunchSpec spec_{.argv = {"true"}};
  NodesSpec nodes_;
  std::unique_ptr<JobPolicy> policy_;
};

/// Brings a job with two nodes, the head's own and b, to `phase`.
inline void bring_to(JobScene& scene, JobPolicy::Phase phase) {
  scene.decide();
  if (phase == JobPolicy::Phase::kGathering) return;
  const int b = scene.come("b");
  if (phase == JobPolicy::Phase::kPreparing) return;
  scene.prepared(0);
  for (const int id : {0, b}) scene.started(id, id);
  if (phase == JobPolicy::Phase::kRunning) return;
  if (phase == JobPolicy::Phase::kEnding) scene.screen = JobPolicy::Screen::kIsWaiting;
  for (const int id : {0, b}) {
    scene.exit(id, id, 0);
    scene.end(id);
  }
}

}  // namespace yoke::launch
