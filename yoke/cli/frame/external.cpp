#include "yoke/cli/frame/external.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"

namespace yoke::cli {
std::optional<std::filesystem::path> find_program(const std::string& file, const Context& context) {
  std::vector<std::filesystem::path> folders = {context.installation.libexec};
  const auto path = context.environment.value_or("PATH", "/usr/local/bin:/usr/bin:/bin");
  for (size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const auto& folder : folders) {
    const auto candidate = folder / file;
    std::error_code error;
    if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate, error)) return candidate;
  }
  return std::nullopt;
}

void exec_external(const std::string& name, const std::vector<std::string>& arguments, const Context& context) {
  if (name.find('/') != name.npos) return;
  const auto program = find_program("yoke-" + name, context);
  if (!program) return;
  std::vector<char*> argv = {const_cast<char*>(program->c_str())};
  for (const auto& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(program->c_str(), argv.data());
  throw system_error(errno, "cannot run " + program->string());
}

std::vector<std::string> external_commands(const Installation& installation) {
  std::vector<std::string> result;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(installation.libexec, error)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("yoke-") && access(entry.path().c_str(), X_OK) == 0) result.push_back(name.substr(5));
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace yoke::cli
