// Reads any bytes as a batch script and as a command line of srun, and checks properties of the result.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "yoke/slurm/check/script.h"

namespace {

using namespace yoke::slurm::check;  // NOLINT(google-build-using-namespace): a program of one file

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto num_lines = static_cast<int64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const auto script = read_script("job.sh", text);
  check(!script.components.empty() && script.components.size() == script.leftovers.size(),
        "each component has leftovers");
  for (const auto& directive : script.directives)
    check(directive.line >= 1 && directive.line <= num_lines, "lines exist");
  for (const auto& command : script.commands) {
    check(!command.words.empty(), "commands have words");
    check(command.program_at <= command.words.size(), "a program is among the words");
    for (const auto& word : command.words) check(word.line >= 1 && word.line <= num_lines + 1, "lines of words exist");
  }
  for (const auto& component : script.components) {
    layout_of(component);
    for (const auto& given : component.options().given) check(given.spec != nullptr, "options are known");
  }
  if (!script.shell.commands.empty()) {
    std::vector<std::string> words = {"srun"};
    for (const auto& word : script.shell.commands.front().words) words.push_back(word.text);
    read_command_line(words);
  }
  return 0;
}
