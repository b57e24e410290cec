// yoke/launch/node/remote_node.h -- a node on another host, whose agent the head reaches over a channel.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

class RemoteNode : public Node {
 public:
  /// Constructs a node for an agent that connected by TCP from `address`, and shows its ranks' output on its own
  /// screen.
  RemoteNode(std::unique_ptr<Channel> channel, std::string address, NodeObserver& observer);
  /// Constructs a node for an agent that the head started. `launch`: the message that describes the job to the agent.
  RemoteNode(AgentProcess process, const nlohmann::json& launch, std::chrono::milliseconds silence,
             NodeObserver& observer);
  ~RemoteNode() override;

  void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) override;
  void start(const NodePlace& place) override;
  void tell_ranks(Order order, int signal) override;
  void replace(int64_t rank, const Replacement& replacement) override;
  void end(int exit_status, const std::string& reason) override;
  void flush(std::chrono::milliseconds patience) override { channel_->flush(patience); }
  LoopTime last_heard() const override { return channel_->last_heard(); }
  bool has_keyboard() const override { return false; }
  void note_signal(const Signal&) override {}  // no terminal of this machine signals the node's ranks
  void pause(const Signal&) override {}        // the node's ranks continue while this process is stopped
  void resume() override {}
  bool is_shown_here() const override { return is_shown_here_; }
  RankStreams streams(int64_t local_rank) const override;
  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

 private:
  void receive();
  void obey(const nlohmann::json& message);
  void read_process_errors();
  void acknowledge();
  void lose(const std::string& why, NodeEvent::Loss how = NodeEvent::Loss::kClosed);

  std::unique_ptr<Channel> channel_;
  std::string address_;
  NodeObserver& observer_;
  UniqueFd process_errors_;
  const bool is_shown_here_;
  bool has_process_errors_ = false;
  std::string error_text_;           ///< The beginning of an incomplete line.
  std::vector<std::string> errors_;  ///< The last complete lines before the agent began.
  pid_t process_ = -1;
  bool has_agent_ = false;  ///< Whether the preamble has arrived; later text on standard error is the agent's.
  bool is_ready_ = false;
  bool is_lost_ = false;
  int64_t unacknowledged_[2] = {0, 0};  ///< Bytes received of standard output, and of standard error.
};

}  // namespace yoke::launch
