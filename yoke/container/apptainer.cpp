#include <fmt/format.h>

#include <algorithm>

#include "yoke/container/detail/engines.h"
#include "yoke/container/extend.h"

namespace yoke::container {

/// Apptainer has no daemon, no names and no log. A PID namespace without its own first process (--no-init) makes
/// container-init the first, so that its end is the end of all processes in the container.
Words plan_apptainer(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  Words words = {"env"};
  auto variables = variables_of(request);
  std::erase_if(variables, [](const auto& variable) { return variable.first == "HOME"; });  // Apptainer refuses it
  variables.insert(variables.end(), grant.variables.begin(), grant.variables.end());
  if (!request.extension.empty()) {
    variables.emplace_back("PREPEND_PATH", std::string(kExtensionInside) + "/bin");  // Apptainer's way to extend PATH
    variables.emplace_back("VIRTUAL_ENV", kExtensionInside);
  }
  // Its option --env splits values at commas.
  for (const auto& [name, value] : variables) words.push_back(fmt::format("APPTAINERENV_{}={}", name, value));
  add(words, {engine.program, "exec", "--pid", "--no-init", "--cleanenv", "--contain"});
  // With --contain, the home is an empty folder. As root, images have files there, so it is theirs.
  if (request.user.uid == 0) add(words, {"--no-home"});
  if (engine.version >= Version{1, 1, 0}) add(words, {"--no-eval"});
  add(words, {engine.version >= Version{1, 2, 0} ? "--cwd" : "--pwd", request.working_folder});
  // With --contain these would be small file systems in memory.
  for (const auto* folder : {"/tmp", "/var/tmp"}) add(words, {"--bind", folder});
  for (const auto& mount : mounts_of(request)) {
    add(words, {"--bind", fmt::format("{}:{}{}", mount.source, mount.target, mount.is_read_only ? ":ro" : "")});
  }
  if (!request.extension.empty()) {
    check_sources({{request.extension, kExtensionInside}});
    add(words, {"--bind", fmt::format("{}:{}:image-src=/", request.extension.native(), kExtensionInside)});
  }
  if (request.network && *request.network != "host") add(words, {"--net", "--network", *request.network});
  words.insert(words.end(), grant.arguments.begin(), grant.arguments.end());
  add(words, {request.image, kInitInside});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return words;
}

}  // namespace yoke::container
