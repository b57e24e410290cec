#include "yoke/container/exec.h"

#include <fmt/format.h>

#include "yoke/container/detail/engines.h"

namespace yoke::container {

std::vector<std::string> plan_exec(EngineKind engine, const std::filesystem::path& tool, const ExecRequest& request) {
  Words words = {tool};
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
    words.push_back(request.name);
  }
  add(words, {kInitInside, "--exec"});
  for (const auto& [name, value] : request.variables) words.push_back(name + "=" + value);
  words.emplace_back("--");
  words.insert(words.end(), request.program.begin(), request.program.end());
  return words;
}

}  // namespace yoke::container
