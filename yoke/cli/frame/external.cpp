#include "yoke/cli/frame/external.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"

namespace yoke::cli {

void exec_external(const std::string& name, const std::vector<std::string>& arguments, const Context& context) {
  if (name.find('/') != name.npos) return;
  std::optional program = context.installation.libexec / ("yoke-" + name);
  if (!is_program(*program)) program = find_program("yoke-" + name, context.environment);
  if (!program) return;
  std::vector<std::string> words = {program->string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  execv(program->c_str(), exec_pointers(words).data());
  throw system_error(errno, "cannot run " + program->string());
}

std::vector<std::string> external_commands(const Installation& installation) {
  std::vector<std::string> result;
  for (const auto& path : entries_of(installation.libexec)) {
    const auto name = path.filename().string();
    // Skips programs with the name of a command, because `yoke NAME` then runs the command.
    if (!name.starts_with("yoke-") || find_command(name.substr(5)) != nullptr) continue;
    if (is_program(path)) result.push_back(name.substr(5));
  }
  return result;
}

}  // namespace yoke::cli
