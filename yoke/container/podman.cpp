#include <fmt/format.h>

#include <utility>

#include "yoke/container/detail/engines.h"

namespace yoke::container {

Client plan_podman(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  auto words = plan_common(engine, request);
  // The driver journald, podman's default on some systems, has no limit of size.
  add(words, {"--log-driver", "k8s-file", "--log-opt", fmt::format("max-size={}", request.log_bytes)});
  // Otherwise the image's own user would run, who is a stranger to the folders and to the keeper.
  add(words, {"--user", fmt::format("{}:{}", request.user.uid, request.user.gid)});
  // This user is the same user in the container, whatever PODMAN_USERNS or containers.conf say.
  add(words, {"--userns", engine.is_rootless ? "keep-id" : "host"});
  if (engine.can_keep_groups) add(words, {"--group-add", "keep-groups"});
  Client client{.argv = std::move(words)};
  add_rest(client, engine, request, grant);
  return client;
}

}  // namespace yoke::container
