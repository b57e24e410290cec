#include "yoke/container/exec.h"

#include <fmt/format.h>

#include "yoke/container/detail/engines.h"
#include "yoke/contract/variables.h"

namespace yoke::container {

Client plan_exec(EngineKind engine, const std::filesystem::path& tool, const ExecRequest& request) {
  Client client{.argv = {tool}};
  auto& words = client.argv;
  for (const auto& [name, value] : request.variables) {
    client.variables.emplace_back(variable::kContainerSetPrefix + name, value);
  }
  if (engine == EngineKind::kApptainer) {
    add(words, {"--target", std::to_string(request.pid), "--mount", "--pid", "--root"});
    if (request.has_own_users) add(words, {"--user", "--preserve-credentials"});
    // A folder is opened before the namespaces are entered, and --wdns is new in util-linux 2.38.
    add(words,
        {request.working_folder ? fmt::format("--wd=/proc/{}/root{}", request.pid, *request.working_folder) : "--wd",
         "--"});
  } else {
    words.emplace_back("exec");
    add_streams(words, request.foreground);
    if (request.working_folder) add(words, {"--workdir", *request.working_folder});
    for (const auto& variable : client.variables) add(words, {"--env", variable.first});
    words.push_back(request.name);
  }
  add(words, {kInitInside, "--exec"});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return client;
}

}  // namespace yoke::container
