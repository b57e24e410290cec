#include "yoke/launch/process/python_program.h"

#include <string_view>

namespace yoke::launch {

bool is_python(std::string_view path) {
  const auto name = path.substr(path.find_last_of('/') + 1);
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == name.npos;
}

std::optional<PythonProgram> python_program(const std::vector<std::string>& argv) {
  if (argv.empty() || !is_python(argv[0])) return std::nullopt;
  size_t i = 1;
  bool is_module = false;
  for (; i < argv.size() && argv[i].starts_with('-') && !is_module; ++i) {
    const std::string_view word = argv[i];
    if (word == "-m") {
      is_module = true;
    } else if (word.starts_with("-W") || word.starts_with("-X")) {
      if (word.size() == 2) ++i;  // the value is the next word
    } else if (word.size() < 2 || word.find_first_not_of("bBdEIOPqsSuv", 1) != word.npos) {
      return std::nullopt;
    }
  }
  if (i >= argv.size()) return std::nullopt;
  const auto program = argv.begin() + static_cast<ptrdiff_t>(i);
  return PythonProgram{.interpreter = {argv.begin(), program - (is_module ? 1 : 0)},
                       .is_module = is_module,
                       .program = {program, argv.end()}};
}

std::vector<std::string> loading_command(const PythonProgram& python, const std::string& loader,
                                         const std::string& modules) {
  auto command = python.interpreter;
  command.insert(command.end(), {loader, modules, python.is_module ? "module" : "script"});
  command.insert(command.end(), python.program.begin(), python.program.end());
  return command;
}

}  // namespace yoke::launch
