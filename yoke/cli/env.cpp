// `yoke env`: make Python environments, and run programs in them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <ctime>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/environment_step.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/device.h"
#include "yoke/device/json.h"
#include "yoke/environment/plan.h"
#include "yoke/environment/store.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

struct EnvCreateArgs {
  std::string target, requirements, python = "python3", index_url;
  std::vector<std::string> frameworks;
  DeviceOptions device;
  bool prints = false;
};

// ---- create ---------------------------------------------------------------------------------------------------------

/// A child reads the devices, so that this process loads no driver.
environment::Drivers read_drivers(const EnvCreateArgs& args, Context& context) {
  const UniqueFd text(memfd_create("yoke-env", MFD_CLOEXEC));
  if (!text) throw system_error(errno, "making a file in memory");
  const int status = with_source(args.device, context, [&](device::Source& source) {
    const auto line = device::to_json(source.sample({.processes = false})).dump();
    write_all(text.value(), std::as_bytes(std::span(line)), "a file in memory");
    return kExitOk;
  });
  if (status != kExitOk) {
    throw Error(ErrorCode::kUnavailable,
                "the drivers do not say what they are, so no build of a framework can be chosen");
  }
  const fs::path root = args.device.sysroot.empty() ? "/" : args.device.sysroot;
  return environment::drivers_of(device::snapshot_from_json(text_of(text)),
                                 read_text(root / "opt/rocm/.info/version").value_or(""));
}

std::vector<environment::Packages> choose_packages(const EnvCreateArgs& args, Context& context) {
  std::vector<environment::Packages> result;
  if (args.frameworks.empty()) return result;
  const auto drivers = read_drivers(args, context);
  const auto requirements = args.requirements.empty() ? "" : read_file(args.requirements);
  for (const auto framework : {environment::Framework::kTorch, environment::Framework::kTensorflow}) {
    if (std::find(args.frameworks.begin(), args.frameworks.end(), name(framework)) == args.frameworks.end()) continue;
    auto packages = packages_for(framework, drivers);
    take_versions(packages, requirements);
    if (!args.index_url.empty()) packages.index_url = args.index_url;
    std::cerr << fmt::format("{}{} for {}: {}\n", speaker(context), fmt::join(packages.requirements, ", "),
                             packages.index_url.empty() ? "pip's own index" : packages.index_url, packages.reason);
    result.push_back(std::move(packages));
  }
  return result;
}

std::string shell_line(const std::vector<std::string>& argv) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%";
  std::vector<std::string> words;
  for (const auto& word : argv) {
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == word.npos;
    words.push_back(is_plain ? word : shell_quoted(word));
  }
  return fmt::format("{}\n", fmt::join(words, " "));
}

/// Makes the folder of a new environment with its mark, and locks it; or locks one that is incomplete.
UniqueFd begin_environment(const fs::path& folder, environment::Mark& mark) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error) throw system_error(error.value(), "making the folder " + folder.parent_path().string());
  const bool is_new = fs::create_directory(folder, error) || (fs::is_directory(folder) && fs::is_empty(folder, error));
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
  auto lock = environment::lock_folder(folder);
  if (!is_new) {
    const auto before = environment::read_mark(folder);
    if (!before) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "{} exists, and `yoke env create` has not made it; give another name or an empty folder",
                  folder.string());
    }
    if (before->stage == environment::Stage::kReady) {
      throw Error(ErrorCode::kFailedPrecondition, "the environment {} exists; `yoke env remove` removes it",
                  folder.string());
    }
  }
  environment::write_mark(folder, mark);
  return lock;
}

int create_environment(const EnvCreateArgs& args, Context& context) {
  const auto folder = environment::folder_of(args.target, context.environment);
  const auto python = find_program(args.python, context.environment);
  if (!python || !is_program(*python)) {
    throw Error(ErrorCode::kNotFound, "there is no Python {}; install python3, or name one by --python", args.python);
  }
  if (!args.requirements.empty() && access(args.requirements.c_str(), R_OK) != 0) {
    throw system_error(errno, "reading the requirements in " + args.requirements);
  }
  environment::CreateRequest request{
      .folder = folder, .python = python->string(), .packages = choose_packages(args, context)};
  if (!args.requirements.empty()) request.requirements = fs::absolute(args.requirements).string();
  const auto steps = steps_of(request);
  if (args.prints) {
    for (const auto& step : steps) context.out << shell_line(step.argv);
    return kExitOk;
  }
  environment::Mark mark{.created = std::time(nullptr)};
  for (const auto& packages : request.packages) {
    mark.packages.insert(mark.packages.end(), packages.requirements.begin(), packages.requirements.end());
    if (!packages.index_url.empty()) mark.index_url = packages.index_url;
  }
  if (!request.requirements.empty()) mark.packages.push_back("-r " + request.requirements);
  const auto lock = begin_environment(folder, mark);
  for (size_t i = 0; i < steps.size(); ++i) {
    std::cerr << fmt::format("{}step {} of {}: {}", speaker(context), i + 1, steps.size(), steps[i].purpose)
              << std::endl;
    run_environment_step(steps[i], folder.string());
    if (i > 0 || is_program(environment::python_of(folder))) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "{} ended without an error, and made no {}, so it is not a Python; name another one by --python, and "
                "remove the rest by `yoke env remove {}`",
                printable(python->string()), environment::python_of(folder).string(), printable(args.target));
  }
  mark.stage = environment::Stage::kReady;
  environment::write_mark(folder, mark);
  context.out << fmt::format("{0} is ready. Next:\n\n  yoke env run {1} -- python\n  . {0}/bin/activate\n",
                             folder.string(), args.target);
  return kExitOk;
}

// ---- list, remove, run ----------------------------------------------------------------------------------------------

int show_environments(bool json, Context& context) {
  const auto listed = environment::list_environments(context.environment);
  if (json) {
    using EnvJson = nlohmann::ordered_json;
    EnvJson array = EnvJson::array();
    for (const auto& one : listed) {
      array.push_back({{"name", one.name},
                       {"folder", one.folder.string()},
                       {"state", name(one.state)},
                       {"python", one.python.empty() ? EnvJson() : EnvJson(one.python)},
                       {"packages", one.mark.packages},
                       {"index_url", one.mark.index_url.empty() ? EnvJson() : EnvJson(one.mark.index_url)},
                       {"created", one.mark.created}});
    }
    context.out << EnvJson{{"environments", array}}.dump(2) << '\n';
    return kExitOk;
  }
  if (listed.empty()) {
    std::cerr << speaker(context) << "there is no environment yet; `yoke env create NAME` makes one" << std::endl;
    return kExitOk;
  }
  Table table{.columns = {{.title = "NAME"},
                          {.title = "STATE"},
                          {.title = "PYTHON"},
                          {.title = "PACKAGES", .shrinks_to = 10},
                          {.title = "FOLDER", .drop_order = 1}},
              .rows = {}};
  for (const auto& one : listed) {
    table.rows.push_back({one.name, std::string(name(one.state)), one.python.empty() ? "?" : one.python,
                          fmt::format("{}", fmt::join(one.mark.packages, " ")), one.folder.string()});
  }
  context.out << to_text(table, output_width(context));
  return kExitOk;
}

int run_in_environment(Context& context) {
  auto words = context.rest;
  if (words.empty()) throw Error(ErrorCode::kInvalidArgument, "say which environment, and what to run in it");
  const auto folder = environment::folder_of(words[0], context.environment);
  words.erase(words.begin());
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) throw Error(ErrorCode::kInvalidArgument, "say what to run, as in `yoke env run NAME -- python`");
  if (!is_program(environment::python_of(folder))) {
    throw Error(ErrorCode::kNotFound, "{} is no environment with a Python that works; see `yoke env list`",
                folder.string());
  }
  const auto variables = environment::activated(context.environment, folder);
  const auto program = find_program(words[0], variables);
  if (!program) {
    std::cerr << speaker(context) << "there is no program " << printable(words[0]) << " in " << folder.string()
              << "/bin or PATH" << std::endl;
    constexpr int kNoProgram = 127;
    return kNoProgram;
  }
  context.out.flush();
  execve(program->c_str(), exec_pointers(words).data(), exec_pointers(variables.to_strings()).data());
  const int error = errno;
  std::cerr << speaker(context) << system_error(error, "cannot start " + words[0]).what() << std::endl;
  constexpr int kNotFound = 127, kCannotRun = 126;
  return error == ENOENT ? kNotFound : kCannotRun;
}

void add_env_create(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<EnvCreateArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("NAME", args->target, "A name, or a folder (with a slash) that is new or empty")
      ->type_name("")
      ->required();
  cmd.add_option("-r,--requirements", args->requirements, "Install what this file names, as pip does")
      ->type_name("FILE");
  cmd.add_option("--with", args->frameworks, "Install the build of a framework that fits the drivers of this machine")
      ->type_name("torch|tensorflow")
      ->delimiter(',')
      ->take_all()
      ->expected(1);
  cmd.add_option("--python", args->python, "The Python to use, by name or path")
      ->type_name("PROGRAM")
      ->capture_default_str();
  cmd.add_option("--index-url", args->index_url, "Take the framework from this index, such as a mirror of PyTorch's")
      ->type_name("URL");
  cmd.add_flag("--print", args->prints, "Print the commands, a line for each, and run none");
  add_device_options(cmd, args->device);
  cmd.footer(
      examples("  yoke env create work                        an empty environment\n"
               "  yoke env create work -r requirements.txt    with packages\n"
               "  yoke env create work --with torch           PyTorch for the driver of this machine\n"
               "  yoke env create ./venv --with torch --print show the commands\n"
               "\n"
               "After a failure or Ctrl-C, the same command goes on with the environment that is there.\n"
               "\n"
               "Exit status: 0; 69 if venv or pip failed, or the environment exists; or that of an error as "
               "`yoke --help` lists them."));
  cmd.callback([args, &context] { context.exit_code = create_environment(*args, context); });
}

}  // namespace

void add_env(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  cmd.footer(
      examples("  yoke env create work --with torch     PyTorch for the driver of this machine\n"
               "  yoke env run work -- python train.py  run a program in it\n"
               "  yoke env list\n"
               "  yoke env remove work"));
  add_env_create(*cmd.add_subcommand("create", "Make a Python environment, and install packages into it"), context);

  auto* const list = cmd.add_subcommand("list", "List your environments that have a name");
  auto json = std::make_shared<bool>();
  list->add_flag("--json", *json, "Print JSON");
  list->footer(examples("  yoke env list --json"));
  list->callback([json, &context] { context.exit_code = show_environments(*json, context); });

  auto* const remove = cmd.add_subcommand("remove", "Remove an environment that yoke has made");
  auto target = std::make_shared<std::string>();
  remove->add_option("NAME", *target, "A name, or a folder (with a slash)")->type_name("")->required();
  remove->footer(
      examples("  yoke env remove work\n"
               "\n"
               "A folder that `yoke env create` has not made stays as it is."));
  remove->callback([target, &context] {
    environment::remove_environment(environment::folder_of(*target, context.environment));
    context.exit_code = kExitOk;
  });

  auto* const run = cmd.add_subcommand("run", "Run a program in an environment");
  auto program = std::make_shared<std::vector<std::string>>();
  run->add_option("ENV", *program, "The environment, a name or a folder, then the program and its arguments")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  run->footer(
      examples("  yoke env run work -- python train.py\n"
               "  yoke claim -n 2 -- yoke env run work -- python train.py\n"
               "\n"
               "Exit status: the program's; 127 if it is not found, 126 if it cannot be executed."));
  run->callback([&context] { context.exit_code = run_in_environment(context); });
}

}  // namespace yoke::cli
