// yoke/launch/node/remote_node.h -- a node on another host, as its head sees it: an agent at the end of a channel.
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
  /// An agent that came by TCP. `address`: where its connection comes from.
  RemoteNode(std::unique_ptr<Channel> channel, std::string address, NodeObserver& observer);
  /// An agent that the head started, and what it is to launch.
  RemoteNode(AgentProcess process, const nlohmann::json& launch, std::chrono::milliseconds silence, std::string host,
             NodeObserver& observer);
  ~RemoteNode() override;

  void prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) override;
  void start(const Place& place) override;
  void order(Order order, int signal) override;
  void add_polls(std::vector<pollfd>& polls) override;
  void handle(const std::vector<pollfd>& polls, size_t first) override;
  std::optional<Time> next_time() const override;

  /// The job is over: with this exit status, for this reason.
  void end(int exit_code, const std::string& reason);
  Time last_heard() const { return channel_->last_heard(); }
  void flush(std::chrono::milliseconds patience) { channel_->flush(patience); }

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
  std::string error_text_;  ///< Not yet a whole line.
  std::string last_error_;  ///< The last line of it.
  pid_t process_ = -1;
  bool has_agent_ = false;  ///< It has begun to speak, on its standard error too.
  bool is_ready_ = false;
  bool is_lost_ = false;
  int64_t unacknowledged_[2] = {0, 0};  ///< Bytes of output, standard error's last.
};

}  // namespace yoke::launch
