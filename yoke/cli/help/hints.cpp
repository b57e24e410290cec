#include "yoke/cli/help/hints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "yoke/cli/help/values.h"
#include "yoke/cli/help/words.h"

namespace yoke::cli {
namespace {

constexpr int kCannotExecute = 126, kNotFound = 127;  // exit statuses of shells

bool is_program_here(const std::string& name) {
  std::error_code ignored;
  return name.find('/') == name.npos && std::filesystem::is_regular_file(name, ignored) &&
         access(name.c_str(), X_OK) == 0;
}

/// Whether `name` is a file that is not executable.
bool is_script_here(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored) && access(name.c_str(), X_OK) != 0 && !name.ends_with(".py");
}

/// Returns the interpreter named in the first line of a script if it does not exist. A carriage return at the end of
/// the line counts as part of the name.
std::optional<std::string> missing_interpreter(const std::string& program) {
  std::error_code ignored;
  if (program.find('/') == program.npos || !std::filesystem::is_regular_file(program, ignored)) return std::nullopt;
  std::ifstream file(program);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return std::nullopt;
  const auto begin = line.find_first_not_of(" \t", 2);
  if (begin == line.npos) return std::nullopt;
  const auto interpreter = line.substr(begin, line.find_first_of(" \t", begin) - begin);
  return access(interpreter.c_str(), F_OK) == 0 ? std::nullopt : std::optional(interpreter);
}

}  // namespace

std::optional<std::string> find_misplaced_option(const std::vector<std::string>& program_and_arguments,
                                                 const std::function<bool(std::string_view)>& is_missing) {
  for (size_t i = 1; i < program_and_arguments.size() && program_and_arguments[i] != "--"; ++i) {
    const auto word = with_dashes(program_and_arguments[i]);
    const auto name = word.substr(0, word.find('='));
    const bool is_number_of_ranks = word == "-n" && i + 1 < program_and_arguments.size() &&
                                    complaint_about("auto|gpu|cpu|N", program_and_arguments[i + 1]).empty();
    const bool is_long = name.size() > 2 && name.starts_with("--") && name != "--help";
    if ((is_number_of_ranks || is_long) && is_missing(name)) return program_and_arguments[i];
  }
  return std::nullopt;
}

std::optional<std::string> hint_about(const EndedJob& job, const std::vector<std::string>& program_and_arguments,
                                      const std::function<bool(std::string_view)>& is_missing) {
  const auto& program = program_and_arguments.front();
  if (job.status == kNotFound && is_program_here(program)) {
    return fmt::format("programs without a / are looked for on PATH; for the one in this folder: yoke run ./{}",
                       program);
  }
  if (const auto interpreter = job.status == kNotFound ? missing_interpreter(program) : std::nullopt) {
    return fmt::format("{} exists, but the interpreter that its first line names does not: '{}'", program,
                       *interpreter);
  }
  if ((job.status == kNotFound || job.status == kCannotExecute) && is_script_here(program)) {
    const auto executable =
        job.status == kCannotExecute ? fmt::format("make it executable: chmod +x {0}; or, ", program) : std::string();
    return fmt::format("{0}if {1} is Python code, use: yoke run --run-path {1}", executable, program);
  }
  if (job.status == 0 || job.status >= kCannotExecute || !job.is_quick) return std::nullopt;
  const auto option = find_misplaced_option(program_and_arguments, is_missing);
  if (!option) return std::nullopt;
  return fmt::format("{} was given to {}; options of `yoke run` come before the program: yoke run {} ... {}", *option,
                     program, *option, program);
}

}  // namespace yoke::cli
