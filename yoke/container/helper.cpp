#include "yoke/container/helper.h"

#include <fmt/format.h>

#include "yoke/container/detail/engines.h"

namespace yoke::container {
namespace {

Client plan_apptainer_helper(const Engine& engine, const HelperRequest& request) {
  Client client;
  for (const auto* const variables : {&request.variables, &request.secrets}) {
    for (const auto& [name, value] : *variables) client.variables.emplace_back("APPTAINERENV_" + name, value);
  }
  auto& words = client.argv;
  add(words, {engine.program, "exec", "--cleanenv", "--contain", "--no-home"});
  if (engine.version >= Version{1, 1, 0}) add(words, {"--no-eval"});
  add(words, {engine.version >= Version{1, 2, 0} ? "--cwd" : "--pwd", "/"});
  for (const auto& mount : request.mounts) add_mount(words, engine, mount);
  words.push_back(request.image);
  words.insert(words.end(), request.program.begin(), request.program.end());
  return client;
}

}  // namespace

Client plan_helper(const Engine& engine, const HelperRequest& request) {
  if (engine.kind == EngineKind::kApptainer) return plan_apptainer_helper(engine, request);
  Client client;
  auto& words = client.argv;
  words = {engine.program, "run", "--rm", "--security-opt", "label=disable"};
  add_pull(words, engine);
  add_limits(words, engine);
  if (request.network) add(words, {"--network", *request.network});
  if (request.only_reads) add(words, {"--read-only", "--cap-drop=all", "--security-opt", "no-new-privileges"});
  if (engine.kind == EngineKind::kPodman || engine.remaps_ids) add(words, {"--userns", "host"});
  // Root in the container is this user already, except under a docker daemon that runs as root.
  const bool is_root = request.uid == 0 || engine.is_rootless || engine.kind == EngineKind::kPodman;
  add(words, {"--user", is_root ? "0:0" : fmt::format("{}:{}", request.uid, request.gid), "--workdir", "/"});
  for (const auto& mount : request.mounts) add_mount(words, engine, mount);
  add(words, {"--env", "NVIDIA_VISIBLE_DEVICES=void"});  // a default runtime would add devices
  for (const auto& [name, value] : request.variables) add(words, {"--env", name + "=" + value});
  for (const auto& variable : request.secrets) add(words, {"--env", variable.first});
  client.variables = request.secrets;
  add(words, {"--entrypoint", request.program.at(0), request.image});
  words.insert(words.end(), request.program.begin() + 1, request.program.end());
  return client;
}

}  // namespace yoke::container
