#include <fmt/format.h>

#include <algorithm>

#include "yoke/container/detail/engines.h"
#include "yoke/container/extend.h"

namespace yoke::container {

/// Apptainer has no daemon, no names and no log. A PID namespace without its own first process (--no-init) makes
/// container-init the first, so that its end is the end of all processes in the container. With --contain, the home of
/// the user is an empty folder in memory.
Words plan_apptainer(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  Words words = {"env"};
  auto variables = variables_of(engine, request);
  for (auto& variable : variables) {
    if (variable.first == "HOME") variable.first = kHomeVariable;  // Apptainer refuses it, so container-init sets it
  }
  variables.insert(variables.end(), grant.variables.begin(), grant.variables.end());
  if (!request.extension.empty()) {
    variables.emplace_back("PREPEND_PATH", std::string(kExtensionInside) + "/bin");  // Apptainer's way to extend PATH
    variables.emplace_back("VIRTUAL_ENV", kExtensionInside);
  }
  // Its option --env splits values at commas.
  for (const auto& [name, value] : variables) words.push_back(fmt::format("APPTAINERENV_{}={}", name, value));
  add(words, {engine.program, "exec", "--pid", "--no-init", "--cleanenv", "--contain"});
  if (engine.version >= Version{1, 1, 0}) add(words, {"--no-eval"});
  add(words, {engine.version >= Version{1, 2, 0} ? "--cwd" : "--pwd", request.working_folder});
  // With --contain these would be small file systems in memory.
  for (const auto* folder : {"/tmp", "/var/tmp"}) add(words, {"--bind", folder});
  for (const auto& mount : mounts_of(request)) add_mount(words, engine, mount);
  if (!request.extension.empty()) {
    add(words, {"--mount", mount_value(request.extension, kExtensionInside, ",image-src=/")});
  }
  add_group_limits(words, request);
  if (request.network && *request.network != "host") add(words, {"--net", "--network", *request.network});
  words.insert(words.end(), grant.arguments.begin(), grant.arguments.end());
  add(words, {request.image, kInitInside});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return words;
}

}  // namespace yoke::container
