#include "yoke/slurm/job/planned_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/request.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm {
namespace {

/// The file that `argv` runs: its program, or the script of a shell or of Python. Empty: it names none.
std::string file_of(const std::vector<std::string>& argv) {
  const auto program = base_name(argv[0]);
  const bool is_interpreter = program == "sh" || program == "bash" || program == "dash" || program == "zsh" ||
                              program == "ksh" || program.starts_with("python");
  if (!is_interpreter) return argv[0];
  const auto script =
      std::find_if(argv.begin() + 1, argv.end(), [](const auto& word) { return !word.starts_with("-"); });
  // After -c, -lc and -m comes no file.
  const bool has_other = std::any_of(argv.begin() + 1, script, [](const auto& word) {
    return !word.starts_with("--") && word.find_first_of("cm") != word.npos;
  });
  return script == argv.end() || has_other ? "" : *script;
}

/// Refuses a batch script: nobody would read its #SBATCH lines, and each rank would run all of it.
void refuse_batch_script(const std::string& file) {
  std::error_code error;
  if (file.empty() || !std::filesystem::is_regular_file(file, error)) return;
  constexpr int kMostLines = 1000;
  std::ifstream in(file);
  std::string line;
  for (int number = 1; number <= kMostLines && std::getline(in, line); ++number) {
    if (!line.starts_with("#SBATCH ") && !line.starts_with("#SBATCH\t")) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "{0} is a batch script, with options for sbatch from line {1} on: here they would not be read, and each "
        "rank would run the whole script. Submit it by `sbatch {2}` (`yoke slurm check {2}` looks for mistakes), or "
        "give the program that it starts",
        printable(file), number, shell_word(printable(file)));
  }
}

}  // namespace

std::vector<std::string> check_program_here(const Request& request, const Environment& environment) {
  const auto& argv = request.argv;
  if (argv.empty() || argv[0].empty() || !request.container.empty()) return {};
  std::vector<std::string> warnings;
  std::error_code error;
  const auto& program = argv[0];
  const bool is_path = program.find('/') != program.npos, is_python = program.ends_with(".py");
  // Parameters such as {cpus} are not known yet.
  const auto is_missing = [&](const std::string& file) {
    return file.find('{') == file.npos && !std::filesystem::exists(file, error);
  };
  if (!is_path && program.find('{') == program.npos && !find_program(program, environment)) {
    if (std::filesystem::is_regular_file(program, error)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{0} is a file of this folder, but programs are looked up in PATH: give {1}", printable(program),
                  is_python ? "python " + shell_word(printable(program)) : shell_word("./" + printable(program)));
    }
    warnings.push_back(fmt::format(
        "{} is not in PATH here; the job fails with 127 unless its nodes have it there, or a module brings it",
        printable(program)));
  }
  const auto script = file_of(argv);
  const bool has_script = script != program && (script.ends_with(".py") || script.ends_with(".sh"));
  for (const auto& file : {is_path ? program : std::string(), has_script ? script : std::string()}) {
    if (file.empty() || !is_missing(file)) continue;
    if (file.starts_with('/')) {  // nodes may have folders that are not here
      warnings.push_back(fmt::format("there is no {} here; the job fails unless its nodes have it", printable(file)));
      continue;
    }
    throw Error(ErrorCode::kNotFound, "there is no {} in this folder, where the job would run", printable(file));
  }
  const bool is_known = program.find('{') == program.npos;
  if (is_path && is_known && !program.starts_with("/") && access(program.c_str(), X_OK) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "{} may not be executed: {}make it executable (chmod +x {})",
                printable(program), is_python ? fmt::format("give python {}, or ", shell_word(printable(program))) : "",
                shell_word(printable(program)));
  }
  return warnings;
}

std::pair<std::string, std::string> parse_variable(const std::string& assignment) {
  const auto equal = assignment.find('=');
  const auto name = assignment.substr(0, equal);
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
  const bool is_name = !name.empty() && is_letter(static_cast<unsigned char>(name[0])) &&
                       std::ranges::all_of(name, [&](unsigned char c) { return is_letter(c) || std::isdigit(c) != 0; });
  if (equal == assignment.npos || !is_name || assignment.find('\n') != assignment.npos) {
    throw Error(ErrorCode::kInvalidArgument, "--env {}: give NAME=VALUE in one line", printable(assignment));
  }
  return {name, assignment.substr(equal + 1)};
}

PlannedJob plan_job(Request request, const JobPlace& place, const Environment& environment) {
  const auto& argv = request.argv;
  // These variables are often a user's defaults. To sbatch they would count more than the lines of the script.
  const std::pair<const char*, std::string&> defaults[] = {{"SBATCH_ACCOUNT", request.account},
                                                           {"SBATCH_PARTITION", request.partition},
                                                           {"SBATCH_QOS", request.qos},
                                                           {"SBATCH_CONSTRAINT", request.constraint},
                                                           {"SBATCH_RESERVATION", request.reservation}};
  for (const auto& [name, value] : defaults) {
    if (value.empty()) value = environment.value_or(name, "");
  }
  for (const auto& word : argv) {
    if (word.find('\n') != word.npos || word.find('\0') != word.npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a word of the program has a line end: put it into a file, and run that");
    }
  }
  if (!argv.empty() && argv[0].empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the name of the program is empty");
  }
  if (!request.memory.empty() && !check::parse_mebibytes(request.memory)) {
    throw Error(ErrorCode::kInvalidArgument, "--mem {}: give a size such as 100G", printable(request.memory));
  }
  if (!request.array.empty() && !check::is_array_value(request.array)) {
    throw Error(ErrorCode::kInvalidArgument, "--array {}: give numbers and ranges, such as 0-9 or 0-9%2",
                printable(request.array));
  }
  if (!argv.empty()) refuse_batch_script(file_of(argv));
  PlannedJob job;
  job.site =
      choose_site_here(place.site, request.partition, environment, site_folders(environment, place.share), job.notes);
  if (!place.version.empty()) {
    job.site.version = parse_version(place.version);
    if (!job.site.version) {
      throw Error(ErrorCode::kInvalidArgument, "--slurm {}: give a version from 20.02, such as 23.11",
                  printable(place.version));
    }
  }
  job.plan = plan_script(request, job.site.site, job.site.version);
  job.script = to_script(job.plan);
  return job;
}

}  // namespace yoke::slurm
