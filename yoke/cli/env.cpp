// `yoke env`: make Python environments, and run programs in them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/json.h"
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
  std::vector<std::string> with;
  DeviceOptions device{.deadline_s = 30};  ///< A driver that keeps no state takes seconds for each GPU when it starts.
  bool prints = false;
};

// ---- create ---------------------------------------------------------------------------------------------------------

/// A child reads the devices, so that this process loads no driver.
environment::Drivers read_drivers(const EnvCreateArgs& args, Context& context) {
  const auto text = to_descriptor("");
  const int status = with_source(args.device, context, [&](device::Source& source) {
    const auto line = device::to_json(source.sample({.processes = false})).dump();
    write_all(text.value(), line, "a file in memory");
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

bool asks_for(const EnvCreateArgs& args, environment::Framework framework) {
  return std::ranges::any_of(args.with, [&](const auto& word) { return word.starts_with(name(framework)); });
}

/// What is known of the machine; nullopt if nothing depends on it.
std::optional<environment::Drivers> drivers_for(const EnvCreateArgs& args, Context& context) {
  const bool chooses_torch = asks_for(args, environment::Framework::kTorch) && args.index_url.empty();
  if (!chooses_torch && !asks_for(args, environment::Framework::kTensorflow)) return std::nullopt;
  return read_drivers(args, context);
}

/// Completes `request` with what is asked for by --with. What the file of requirements decides is left to it.
void choose_packages(environment::CreateRequest& request, const EnvCreateArgs& args,
                     const std::optional<environment::Drivers>& drivers, const environment::PipFacts& facts) {
  request.packages.clear();
  request.names.clear();
  request.has_hashes = facts.has_hashes;
  for (const auto framework : {environment::Framework::kTorch, environment::Framework::kTensorflow}) {
    if (!asks_for(args, framework)) continue;
    const bool is_torch = framework == environment::Framework::kTorch;
    if (find_decided(facts, name(framework)) != nullptr) {
      for (const auto& word : args.with) {
        if (word.starts_with(name(framework))) request.names.push_back(word);
      }
      continue;
    }
    auto packages = is_torch && !args.index_url.empty() ? environment::torch_from(args.index_url)
                                                        : packages_for(framework, *drivers, facts.torch_minors);
    if (!args.index_url.empty()) packages.index_url = args.index_url;
    for (const char* const extra : {"torchvision", "torchaudio"}) {
      if (is_torch && std::ranges::find(args.with, extra) != args.with.end()) {
        packages.requirements.push_back({extra, ""});
      }
    }
    add_versions(packages, facts);
    request.packages.push_back(std::move(packages));
  }
}

/// Says what was chosen, why, and what does not count.
void tell_choice(const environment::CreateRequest& request, const EnvCreateArgs& args,
                 const environment::PipFacts& facts, const Context& context) {
  const auto tell = [&](const std::string& text) { std::cerr << speaker(context) << printable(text) << std::endl; };
  const auto ignored = environment::ignored_settings(facts.settings);
  if (!ignored.empty()) {
    tell(fmt::format("pip's settings do not count that say what is installed or where: {}", fmt::join(ignored, ", ")));
  }
  if (!facts.unread.empty())
    tell(fmt::format("the requirements were not read before pip reads them: {}", facts.unread));
  for (const auto& packages : request.packages) {
    std::vector<std::string> texts;
    for (const auto& requirement : packages.requirements) texts.push_back(requirement.text());
    tell(fmt::format("{} for {}: {}", fmt::join(texts, ", "),
                     packages.index_url.empty() ? "pip's own index" : packages.index_url, packages.reason));
  }
  for (const auto framework : {environment::Framework::kTorch, environment::Framework::kTensorflow}) {
    const auto is_line = [&](const environment::Named& one) { return one.package == name(framework); };
    const auto* const decided = find_decided(facts, name(framework));
    const auto line = std::ranges::find_if(facts.named, is_line);
    if (asks_for(args, framework) && decided != nullptr) {
      tell(
          fmt::format("{} decides which {} is installed, because {}; without that, --with {} takes the build for this "
                      "machine",
                      decided->where, name(framework), decided->decided, name(framework)));
    } else if (!asks_for(args, framework) && line != facts.named.end()) {
      tell(
          fmt::format("{} and pip's index decide which build of {} is installed; --with {} takes the one for this "
                      "machine",
                      line->where, name(framework), name(framework)));
    }
  }
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

/// An environment that is being made.
struct Begun {
  UniqueFd lock;
  bool is_made = false;  ///< The folder was not there.
};

/// Makes the folder of a new environment with its mark, and locks it; or locks one that is incomplete.
Begun begin_environment(const fs::path& folder, environment::Mark& mark) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error) throw system_error(error.value(), "making the folder " + folder.parent_path().string());
  const bool is_made = fs::create_directory(folder, error);
  const bool is_new = is_made || (fs::is_directory(folder) && fs::is_empty(folder, error));
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
  return {std::move(lock), is_made};
}

/// After a signal: removes an environment that has nothing in it yet, or says what can be done with it.
void leave_environment(const Begun& begun, const EnvCreateArgs& args, const fs::path& folder, bool has_packages,
                       const Context& context) {
  if (begun.is_made && !has_packages) return environment::remove_locked(begun.lock, folder);
  std::cerr << fmt::format(
                   "{0}interrupted; the same command goes on with what is in {1}, and `yoke env remove {2}` removes it",
                   speaker(context), printable(folder.string()), printable(args.target))
            << std::endl;
}

/// What pip has been told, for --print, which makes no environment whose pip could be asked.
environment::PipFacts facts_for_print(const std::string& python, const environment::CreateRequest& request,
                                      const Context& context) {
  if (request.requirements.empty()) return {};
  try {
    return ask_python(python, {"--settings", request.requirements}, context);
  } catch (const Error& error) {
    return {.unread = error.what()};
  }
}

int print_steps(const environment::CreateRequest& request, Context& context) {
  const auto steps = steps_of(request);
  for (size_t i = 0; i < steps.size(); ++i) {
    context.out << shell_line(steps[i].argv);
    const bool is_of_packages = i > 0 && i <= request.packages.size();
    if (!is_of_packages || i + 1 == steps.size()) continue;
    context.out << fmt::format(
        "{} -I -m pip freeze | grep -E '^(torch|torchvision|torchaudio|tensorflow)(-cpu)?==' > {}\n",
        shell_quoted(environment::python_of(request.folder).string()),
        shell_quoted(environment::constraints_of(request.folder).string()));
  }
  return kExitOk;
}

/// What pip was asked for, for `yoke env list`.
void set_packages(environment::Mark& mark, const environment::CreateRequest& request) {
  mark.packages = request.names;
  for (const auto& packages : request.packages) {
    for (const auto& requirement : packages.requirements) mark.packages.push_back(requirement.text());
    if (!packages.index_url.empty()) mark.index_url = packages.index_url;
  }
  if (!request.requirements.empty()) mark.packages.push_back("-r " + request.requirements);
}

/// Runs the steps after the first one, and checks what they leave.
/// Returns  the versions that were promised, as the environment's own Python has them at the end.
std::map<std::string, std::string> install_packages(const environment::CreateRequest& request,
                                                    const environment::PipFacts& facts, const Context& context) {
  const auto folder = request.folder.string();
  const auto python = environment::python_of(request.folder).string();
  const auto steps = steps_of(request);
  std::map<std::string, std::string> chosen;
  for (size_t i = 1; i < steps.size(); ++i) {
    std::cerr << fmt::format("{}step {} of {}: {}", speaker(context), i + 1, steps.size(), steps[i].purpose)
              << std::endl;
    run_environment_step(steps[i], folder, pip_environment(context.environment, facts.settings, steps[i].indices));
    if (i > request.packages.size()) continue;
    chosen = ask_python(python, {}, context).versions;
    check_build(request.packages[i - 1], chosen, folder);
    std::string lines;
    for (const auto& [package, version] : chosen) lines += fmt::format("{}=={}\n", package, version);
    replace_file(environment::constraints_of(request.folder), lines);
  }
  const auto words = request.requirements.empty() ? std::vector<std::string>() : std::vector{request.requirements};
  const auto at_end = ask_python(python, words, context);
  check_kept(request, chosen, at_end);
  return at_end.versions;
}

void make_venv(const environment::CreateRequest& request, const EnvCreateArgs& args, const std::string& python,
               const Context& context) {
  const auto steps = steps_of(request);
  std::cerr << fmt::format("{}step 1 of {}: {}", speaker(context), steps.size(), steps[0].purpose) << std::endl;
  run_environment_step(steps[0], request.folder.string(), context.environment);
  if (is_program(environment::python_of(request.folder))) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} ended without an error, and made no {}, so it is not a Python; name another one by --python, and "
              "remove the rest by `yoke env remove {}`",
              printable(python), environment::python_of(request.folder).string(), printable(args.target));
}

/// Installs what was asked for. Returns what it has at the end: ", with torch 2.14.0+cu126".
std::string fill_environment(environment::CreateRequest& request, const EnvCreateArgs& args,
                             const std::optional<environment::Drivers>& drivers, environment::Mark& mark,
                             const Context& context) {
  if (steps_of(request).size() == 1) return "";
  std::vector<std::string> words = {"--settings"};
  if (!request.requirements.empty()) words.push_back(request.requirements);
  const auto facts = ask_python(environment::python_of(request.folder).string(), words, context);
  choose_packages(request, args, drivers, facts);
  tell_choice(request, args, facts, context);
  set_packages(mark, request);
  std::string promised;
  for (const auto& [package, version] : install_packages(request, facts, context)) {
    promised += fmt::format("{}{} {}", promised.empty() ? ", with " : ", ", package, version);
  }
  return promised;
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
  environment::CreateRequest request{.folder = folder, .python = python->string()};
  if (!args.requirements.empty()) request.requirements = fs::absolute(args.requirements).string();
  const auto drivers = drivers_for(args, context);
  if (args.prints) {
    const auto facts = facts_for_print(python->string(), request, context);
    choose_packages(request, args, drivers, facts);
    tell_choice(request, args, facts, context);
    return print_steps(request, context);
  }
  choose_packages(request, args, drivers, {});  // what fails for every version fails before anything is made
  environment::Mark mark{.created = std::time(nullptr)};
  set_packages(mark, request);
  const HeldSignals signals;  // they act when it is said or undone what was begun
  const auto begun = begin_environment(folder, mark);
  std::string promised;
  bool has_packages = false;
  try {
    make_venv(request, args, python->string(), context);
    signals.check();
    has_packages = true;
    promised = fill_environment(request, args, drivers, mark, context);
    signals.check();
  } catch (const Error&) {
    if (signals.has_come()) leave_environment(begun, args, folder, has_packages, context);
    throw;
  }
  mark.stage = environment::Stage::kReady;
  environment::write_mark(folder, mark);
  if (!context.environment.value_or("PYTHONPATH", "").empty()) {
    std::cerr << speaker(context) << "PYTHONPATH is set, and packages there hide those of the environment" << std::endl;
  }
  context.out << fmt::format("{0} is ready{2}. Next:\n\n  yoke env run {1} -- python\n  . {0}/bin/activate\n",
                             folder.string(), args.target, promised);
  return kExitOk;
}

// ---- list, remove, run ----------------------------------------------------------------------------------------------

int show_environments(bool json, Context& context) {
  const auto listed = environment::list_environments(context.environment);
  if (json) {
    Json array = Json::array();
    for (const auto& one : listed) {
      array.push_back({{"name", one.name},
                       {"folder", one.folder.string()},
                       {"state", name(one.state)},
                       {"python", one.python.empty() ? Json() : Json(one.python)},
                       {"packages", one.mark.packages},
                       {"index_url", one.mark.index_url.empty() ? Json() : Json(one.mark.index_url)},
                       {"created", one.mark.created}});
    }
    print_json(Json{{"environments", array}}, context);
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
  cmd.add_option("--with", args->with, "Install the build of a framework that fits the drivers of this machine")
      ->type_name("torch|torchvision|torchaudio|tensorflow")
      ->delimiter(',')
      ->take_all()
      ->expected(1)
      ->check([](const std::string& word) -> std::string {
        for (const char* const known : {"torch", "torchvision", "torchaudio", "tensorflow"}) {
          if (word == known) return "";
        }
        return word +
               ": give torch, torchvision, torchaudio or tensorflow, with commas between them; other packages go "
               "into a file for -r";
      });
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
               "  yoke env create work --with torch,torchvision -r requirements.txt\n"
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
