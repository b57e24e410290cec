#include "yoke/slurm/job/planned_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/words/request.h"

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

namespace fs = std::filesystem;

/// Slurm makes folders from 23.02 on (commit ecc671a141).
void check_output(const ScriptPlan& plan, const char* option, const std::optional<Version>& version) {
  const auto pattern = directive_of(plan, option), name = directive_of(plan, "--job-name");
  if (pattern.empty()) return;
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (pattern.find('$') != pattern.npos || pattern.starts_with('~')) {
    refuse(
        fmt::format("{} {}: Slurm replaces no $NAME and no ~ there; write the whole path", option, printable(pattern)));
  }
  if (pattern.find('\\') != pattern.npos) {
    refuse(fmt::format("{} {}: Slurm drops backslashes, and then replaces nothing in the path; write it without",
                       option, printable(pattern)));
  }
  if (name.find('/') != name.npos && pattern.find("%x") != pattern.npos) {
    refuse(fmt::format("--job-name {}: %x in the output would name a file in a folder; use a name without /",
                       printable(name)));
  }
  std::error_code error;
  const auto here = fs::current_path(error).string();
  require_plain_folder(here, "submit from another one");
  if (pattern.find('%') == pattern.npos && fs::exists(pattern, error)) {  // a file that is there, or /dev/null
    if (fs::is_directory(pattern, error)) {
      refuse(fmt::format("{} {}: it is a folder; name a file in it, such as {}/slurm-%j.out", option,
                         printable(pattern), printable(pattern)));
    }
    if (access(pattern.c_str(), W_OK) == 0) return;
    throw system_error(errno, fmt::format("the output of the job, {}", printable(pattern)));
  }
  const auto folder = fs::path(pattern).parent_path();
  if (folder.string().find('%') != std::string::npos) return;
  const auto shown = folder.empty() ? here : folder.string();
  if (const auto missing = missing_output_folder(pattern, here)) {
    const bool makes_folders = version && *version >= Version{23, 2, 0};
    if (makes_folders) return;
    refuse(fmt::format(
        "{} {}: there is no folder {}, and Slurm before 23.02 does not make it; make it first: "
        "mkdir -p {}",
        option, printable(pattern), printable(missing->string()), shell_word(printable(missing->string()))));
  }
  if (fs::is_directory(folder.empty() ? fs::path(".") : folder, error) && access(shown.c_str(), W_OK) != 0) {
    throw system_error(errno, fmt::format("the output of the job in {}", printable(shown)));
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

std::string directive_of(const ScriptPlan& plan, std::string_view name) {
  for (const auto& [option, why] : plan.directives) {
    if (option.starts_with(name) && option.size() > name.size() && option[name.size()] == '=') {
      return option.substr(name.size() + 1);
    }
  }
  return "";
}

void check_outputs(const ScriptPlan& plan, const std::optional<Version>& version) {
  for (const auto* option : {"--output", "--error"}) check_output(plan, option, version);
}

void check_array_size(const std::string& array, const Environment& environment) {
  const auto largest = check::largest_index(array);
  std::optional<int64_t> size;
  try {
    if (largest) size = max_array_size(environment);
  } catch (const Error&) {  // there is no Slurm here, or it does not answer: sbatch says so
  }
  if (!size || *largest < *size) return;
  throw Error(ErrorCode::kInvalidArgument,
              "--array {}: the largest index is {}, and those of this cluster are at most {} (MaxArraySize={}); submit "
              "several arrays, or let each task do the work of several",
              printable(array), *largest, *size - 1, *size);
}

}  // namespace yoke::slurm
