// yoke/launch/node/remote_node.h -- a node on another host: the head reaches its agent over a channel.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

class RemoteNode : public Node {
 public:
  /// An agent that connected by TCP, and shows the output of its ranks on its own screen. `address`: the address from
  /// which it connected.
  RemoteNode(std::unique_ptr<Channel> channel, std::string address, NodeObserver& observer);
  /// An agent that the head started. `launch`: the message that describes the job to it.
  RemoteNode(AgentProcess process, const nlohmann::json& launch, std::chrono::milliseconds silence, std::string host,
             NodeObserver& observer);
  ~RemoteNode() override;

  void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) override;
  void start(const Place& place) override;
  void order(Order order, int signal) override;
  void end(int exit_status, const std::string& reason) override;
  void flush(std::chrono::milliseconds patience) override { channel_->flush(patience); }
  LoopTime last_heard() const override { return channel_->last_heard(); }
  bool has_keyboard() const override { return false; }
  void note_signal(const Signal&) override {}  // no terminal of this machine signals its ranks
  void pause(const Signal&) override {}        // its ranks continue while this process is stopped
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
  void lose(const std::string& why);

  std::unique_ptr<Channel> channel_;
  std::string address_;
  std::string host_;
  NodeObserver& observer_;
  UniqueFd process_errors_;
  const bool is_shown_here_;
  bool has_process_errors_ = false;
  std::string error_text_;  ///< The beginning of a line that is not complete.
  std::string last_error_;  ///< The last complete line.
  pid_t process_ = -1;
  bool has_agent_ = false;  ///< The preamble has arrived, so later text on its standard error is the agent's.
  bool is_ready_ = false;
  bool is_lost_ = false;
  int64_t unacknowledged_[2] = {0, 0};  ///< Bytes of standard output, and of standard error.
};

}  // namespace yoke::launch
