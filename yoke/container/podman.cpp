#include <fmt/format.h>

#include "yoke/container/detail/engines.h"

namespace yoke::container {

Words plan_podman(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  auto words = plan_common(engine, request);
  // The driver journald, podman's default on some systems, has no limit of size.
  add(words, {"--log-driver", "k8s-file", "--log-opt", fmt::format("max-size={}", request.log_bytes)});
  if (engine.is_rootless) {
    add(words, {"--userns", "keep-id"});  // this user is the same user in the container
    if (engine.can_keep_groups) add(words, {"--group-add", "keep-groups"});
  }
  add_rest(words, engine, request, grant);
  return words;
}

}  // namespace yoke::container
