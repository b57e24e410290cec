// yoke/launch/node/endpoint_check.h -- finds out whether the endpoint that the user gave leads to this head.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "yoke/base/file.h"
#include "yoke/launch/loop/event_loop.h"

namespace yoke::launch {

/// Looks at the endpoint in a child process, because a name server may take long to answer. What it finds is no error:
/// behind a service's name or a forwarded port an endpoint may have any address.
class EndpointCheck : public EventSource {
 public:
  /// `is_own(greeting)`: whether this head has sent these random bytes, so that it was reached itself.
  EndpointCheck(std::string host, uint16_t port, std::function<bool(const std::string& greeting)> is_own);
  ~EndpointCheck() override;

  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

  /// Returns once what is wrong with the endpoint, for the user; nullopt if nothing is, or it is not known yet.
  std::optional<std::string> take_doubt();

 private:
  void judge();

  std::string host_;
  uint16_t port_;
  std::function<bool(const std::string&)> is_own_;
  pid_t child_ = -1;
  UniqueFd found_;
  bool has_found_ = false;
  std::string answer_;
  std::optional<std::string> doubt_;
};

}  // namespace yoke::launch
