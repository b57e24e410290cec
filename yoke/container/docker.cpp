#include <fmt/format.h>

#include <utility>

#include "yoke/container/detail/engines.h"

namespace yoke::container {

Client plan_docker(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  auto words = plan_common(engine, request);
  add(words, {"--log-driver", "json-file", "--log-opt", fmt::format("max-size={}", request.log_bytes), "--log-opt",
              "max-file=1"});
  if (engine.remaps_ids) add(words, {"--userns", "host"});
  if (request.user.uid == 0 || engine.is_rootless) {
    add(words, {"--user", "0:0"});  // in a rootless daemon's containers, root is this user already
  } else {
    add(words, {"--user", fmt::format("{}:{}", request.user.uid, request.user.gid)});
    for (const auto group : request.user.groups) {
      if (group != request.user.gid) add(words, {"--group-add", std::to_string(group)});
    }
  }
  Client client{.argv = std::move(words)};
  add_rest(client, engine, request, grant);
  return client;
}

}  // namespace yoke::container
