#include "yoke/cli/options/slurm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/request.h"

namespace yoke::cli {
namespace {

void add_text(CLI::App& cmd, const char* names, std::string& target, const char* type, const char* text) {
  cmd.add_option(names, target, text)->type_name(type);
}

void add_texts(CLI::App& cmd, const char* names, std::vector<std::string>& target, const char* type, const char* text) {
  cmd.add_option(names, target, text)->type_name(type)->take_all()->expected(1);
}

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

std::vector<std::string> check_program_here(const SlurmJobOptions& options, const Context& context) {
  const auto& argv = context.rest;
  if (argv.empty() || argv[0].empty() || !options.request.container.empty()) return {};
  std::vector<std::string> warnings;
  std::error_code error;
  const auto& program = argv[0];
  const bool is_path = program.find('/') != program.npos, is_python = program.ends_with(".py");
  // Parameters such as {cpus} are not known yet.
  const auto is_missing = [&](const std::string& file) {
    return file.find('{') == file.npos && !std::filesystem::exists(file, error);
  };
  if (!is_path && program.find('{') == program.npos && !find_program(program, context.environment)) {
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
  for (const auto& warning : warnings) std::cerr << speaker(context) << "warning: " << warning << '\n';
  return warnings;
}

void add_job_options(CLI::App& cmd, SlurmJobOptions& options) {
  auto& request = options.request;
  add_number(cmd, "-N,--nodes", request.num_nodes, {"N", 1, 65536}, "Nodes");
  add_number(cmd, "--gpus-per-node", request.gpus_per_node, {"N", 0, 1024},
             "GPUs on each node; unless given, all that the site's nodes have");
  add_number(cmd, "--ranks-per-node", request.ranks_per_node, {"N", 1, 65536},
             "Ranks on each node; unless given, one for each GPU");
  add_number(cmd, "--cpus-per-rank", request.cpus_per_rank, {"N", 1, 65536},
             "CPUs of each rank, also for its loader; unless given, a GPU's share of the node");
  add_text(cmd, "-t,--time", request.time, "TIME", "The job's longest time: 30m, 2h, 1d12h, or Slurm's H:MM:SS");
  add_text(cmd, "--mem", request.memory, "SIZE", "Memory of a node, such as 100G; unless given, the site's");
  add_text(cmd, "-p,--partition", request.partition, "NAME",
           "The partition; unless given, the site's or Slurm's default");
  add_text(cmd, "-A,--account", request.account, "NAME", "The account or project that pays");
  add_text(cmd, "-q,--qos", request.qos, "NAME", "The quality of service");
  add_text(cmd, "-C,--constraint", request.constraint, "FEATURES", "Nodes with these features alone");
  add_text(cmd, "--reservation", request.reservation, "NAME", "Nodes of this reservation");
  add_text(cmd, "-a,--array", request.array, "INDEXES",
           "An array of jobs, such as 0-9%2; they have SLURM_ARRAY_TASK_ID");
  add_text(cmd, "-d,--dependency", request.dependency, "LIST", "Start after other jobs, such as afterok:4711");
  add_text(cmd, "-J,--job-name", request.job_name, "NAME", "Unless given, the name of the program");
  add_text(cmd, "-o,--output", request.output, "FILE", "What the job prints; slurm-%j.out unless given");
  cmd.add_flag(
      "--file-per-rank", request.has_file_per_rank,
      "Write what rank R prints to slurm-JOB-rankR.out; with a launcher, that of node N to slurm-JOB-nodeN.out");
  add_texts(cmd, "--sbatch", request.options, "OPTION", "A further option of sbatch, such as --sbatch=--mail-type=END");
  cmd.add_option("--launcher", options.launcher,
                 "srun: a task for each rank, needs nothing on the nodes; yoke: a `yoke run` on each node")
      ->type_name("auto|srun|yoke")
      ->capture_default_str();
  add_text(cmd, "--container", request.container, "IMAGE",
           "Run the program in this image, by Singularity or Apptainer");
  add_text(cmd, "--overlay", request.overlay, "FILE", "Lay this squashfs or ext3 file over the image");
  add_texts(cmd, "--bind", request.mounts, "DIR", "Mount this folder into the container: DIR, or DIR:DIR_INSIDE");
  add_texts(cmd, "--module", request.modules, "NAME", "Load this module in the job");
  add_texts(cmd, "--env", options.variables, "NAME=VALUE", "Set this variable in the job");
  add_number(cmd, "--stop-before", request.signal_seconds, {"SECONDS", 0, 65535},
             "Tell the ranks to stop so long before the time is over; 0: not at all");
  add_number(cmd, "--requeue", request.num_requeues, {"N", 0, 10000},
             "Put a job that stopped in time back into the queue, N times at most; 0: never");
  add_text(cmd, "--site", options.site, "NAME", "The site, by name or file; unless given, found by the cluster's name");
  add_text(cmd, "--slurm", options.version, "VERSION", "Write for this version of Slurm, such as 23.11");
  static constexpr SbatchHabit kHabits[] = {
      {"-n,--ntasks", "give nodes by -N and ranks of each by --ranks-per-node"},
      {"--ntasks-per-node", "give --ranks-per-node"},
      {"-c,--cpus-per-task", "give --cpus-per-rank"},
      {"-G,--gpus", "give nodes by -N and GPUs of each by --gpus-per-node"},
      {"--gres", "give --gpus-per-node N for GPUs; other resources as --sbatch=--gres=NAME:N"},
      {"--gpus-per-task", "give --gpus-per-node; each rank takes the GPU of its LOCAL_RANK"},
      {"--cpus-per-gpu", "give --cpus-per-rank"},
      {"--signal", "give --stop-before SECONDS"},
      {"--no-requeue", "give --requeue 0"},
      {"--mem-per-cpu", "give it as --sbatch=--mem-per-cpu=SIZE"},
      {"--mem-per-gpu", "give it as --sbatch=--mem-per-gpu=SIZE"},
      {"-w,--nodelist", "give it as --sbatch=--nodelist=NODES"},
      {"-x,--exclude", "give it as --sbatch=--exclude=NODES"},
      {"--exclusive", "give it as --sbatch=--exclusive"},
      {"-b,--begin", "give it as --sbatch=--begin=TIME"},
      {"-e,--error", "give it as --sbatch=--error=FILE"},
      {"--mail-type", "give it as --sbatch=--mail-type=TYPE"},
      {"--mail-user", "give it as --sbatch=--mail-user=ADDRESS"},
      {"-D,--chdir", "`cd` before: the job runs in the folder of its submission"},
      {"--wrap", "give the program after --"},
      {"--export", "give --env NAME=VALUE; the job has the variables of this shell too"}};
  add_habits(cmd, kHabits);
}

void add_habits(CLI::App& cmd, std::span<const SbatchHabit> habits) {
  for (const auto& habit : habits) {
    const std::string names = habit.names, name = names.substr(names.find("--")), instead = habit.instead;
    const auto* spec = slurm::check::find_option(slurm::check::kSbatch, name.substr(2));
    const bool takes_value = spec != nullptr && spec->value == slurm::check::Value::kRequired;
    const auto refuse = [name, instead, takes_value](const std::vector<std::string>& values) {
      // The word after a flag may be the program.
      const auto value = !takes_value || values.empty() || values[0].empty() ? "" : " " + values[0];
      throw Error(ErrorCode::kInvalidArgument, "{}{} is an option of sbatch: {}", name, printable(value), instead);
    };
    cmd.add_option_function<std::vector<std::string>>(names, refuse)->expected(0, 1)->group("");
  }
}

PlannedJob plan_job(const SlurmJobOptions& options, const Context& context) {
  auto request = options.request;
  request.argv = context.rest;
  // These variables are often a user's defaults. To sbatch they would count more than the lines of the script.
  const std::pair<const char*, std::string&> defaults[] = {{"SBATCH_ACCOUNT", request.account},
                                                           {"SBATCH_PARTITION", request.partition},
                                                           {"SBATCH_QOS", request.qos},
                                                           {"SBATCH_CONSTRAINT", request.constraint},
                                                           {"SBATCH_RESERVATION", request.reservation}};
  for (const auto& [name, value] : defaults) {
    if (value.empty()) value = context.environment.value_or(name, "");
  }
  if (options.launcher == "srun") request.launcher = slurm::Launcher::kSrun;
  if (options.launcher == "yoke") request.launcher = slurm::Launcher::kYoke;
  for (const auto& assignment : options.variables) {
    const auto equal = assignment.find('=');
    const auto name = assignment.substr(0, equal);
    const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
    const bool is_name =
        !name.empty() && is_letter(static_cast<unsigned char>(name[0])) &&
        std::ranges::all_of(name, [&](unsigned char c) { return is_letter(c) || std::isdigit(c) != 0; });
    if (equal == assignment.npos || !is_name || assignment.find('\n') != assignment.npos) {
      throw Error(ErrorCode::kInvalidArgument, "--env {}: give NAME=VALUE in one line", printable(assignment));
    }
    request.variables.emplace_back(name, assignment.substr(equal + 1));
  }
  for (const auto& word : context.rest) {
    if (word.find('\n') != word.npos || word.find('\0') != word.npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a word of the program has a line end: put it into a file, and run that");
    }
  }
  if (!context.rest.empty() && context.rest[0].empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the name of the program is empty");
  }
  if (!request.memory.empty() && !slurm::check::parse_mebibytes(request.memory)) {
    throw Error(ErrorCode::kInvalidArgument, "--mem {}: give a size such as 100G", printable(request.memory));
  }
  if (!request.array.empty() && !slurm::check::is_array_value(request.array)) {
    throw Error(ErrorCode::kInvalidArgument, "--array {}: give numbers and ranges, such as 0-9 or 0-9%2",
                printable(request.array));
  }
  if (!context.rest.empty()) refuse_batch_script(file_of(context.rest));
  std::vector<std::string> notes;
  auto site = slurm::choose_site_here(options.site, request.partition, context.environment,
                                      slurm::site_folders(context.environment, context.installation.share), notes);
  if (!options.version.empty()) {
    site.version = slurm::parse_version(options.version);
    if (!site.version) {
      throw Error(ErrorCode::kInvalidArgument, "--slurm {}: give a version from 20.02, such as 23.11",
                  printable(options.version));
    }
  }
  auto plan = slurm::plan_script(request, site.site, site.version);
  for (const auto& note : notes) std::cerr << speaker(context) << note << '\n';
  for (const auto& warning : plan.warnings) std::cerr << speaker(context) << "warning: " << warning << '\n';
  auto script = slurm::to_script(plan);
  return {std::move(site), std::move(plan), std::move(script)};
}

}  // namespace yoke::cli
