#include "yoke/container/detail/engines.h"
#include "yoke/container/extend.h"
#include "yoke/contract/variables.h"

namespace yoke::container {

/// Apptainer has no daemon, no names and no log. A PID namespace without its own first process (--no-init) makes
/// container-init the first, so that its end is the end of all processes in the container. With --contain, the home of
/// the user is an empty folder in memory.
Client plan_apptainer(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  Client client;
  // Its option --env splits values at commas.
  const auto set = [&](const std::string& name, const std::string& value) {
    client.variables.emplace_back("APPTAINERENV_" + name, value);
  };
  for (const auto& [name, value] : own_variables(engine, request)) set(name, value);
  for (const auto& [name, value] : users_variables(request)) {
    set(name == "HOME" ? variable::kContainerSetPrefix + name : name, value);  // Apptainer refuses it
  }
  for (const auto& [name, value] : grant.variables) set(name, value);
  if (!request.extension.empty()) {
    set("PREPEND_PATH", std::string(kExtensionInside) + "/bin");  // Apptainer's way to extend PATH
    set("VIRTUAL_ENV", kExtensionInside);
  }
  auto& words = client.argv;
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
  return client;
}

}  // namespace yoke::container
