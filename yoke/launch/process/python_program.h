// yoke/launch/process/python_program.h -- finds the script in the command line of a Python program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::launch {

/// A command line such as {"python3", "-u", "train.py", "--lr", "0.1"}.
struct PythonProgram {
  std::vector<std::string> interpreter;  ///< {"python3", "-u"}
  bool is_module = false;                ///< The program follows `-m`.
  std::vector<std::string> program;      ///< {"train.py", "--lr", "0.1"}
};

/// Whether the program is called python, python3, python3.12, ... Pure.
bool is_python(std::string_view path);

/// Returns nullopt if `argv` does not start a script or a module by a program called python, python3, python3.12, ...:
/// also if it has an option that is not listed in Python's manual for every version since 3.9, or reads its program
/// from elsewhere (`-c`, `-`). Pure.
std::optional<PythonProgram> python_program(const std::vector<std::string>& argv);

/// Returns the command line that imports the modules of the program and waits (tools/python/yoke_preload.py, which is
/// `loader`). `modules` are names with commas between them; empty: what the script imports at its beginning. Pure.
std::vector<std::string> loading_command(const PythonProgram& python, const std::string& loader,
                                         const std::string& modules);

}  // namespace yoke::launch
