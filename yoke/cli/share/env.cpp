// `yoke env`: make Python environments, and run programs in them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/json.h"
#include "yoke/environment/create.h"
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

std::string shell_line(const std::vector<std::string>& argv) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%";
  std::vector<std::string> words;
  for (const auto& word : argv) {
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == word.npos;
    words.push_back(is_plain ? word : shell_quoted(word));
  }
  return fmt::format("{}\n", fmt::join(words, " "));
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

int create_environment(const EnvCreateArgs& args, Context& context) {
  const environment::CreateOptions options{.target = args.target,
                                           .python = args.python,
                                           .requirements = args.requirements,
                                           .index_url = args.index_url,
                                           .with = args.with,
                                           .script = context.installation.share / "python" / "yoke_environment.py",
                                           .environment = context.environment,
                                           .read_drivers = [&] { return read_drivers(args, context); },
                                           .tell = teller(context),
                                           .copy_to = STDERR_FILENO};
  if (args.prints) return print_steps(plan_environment(options), context);
  const auto created = environment::create_environment(options);
  if (!context.environment.value_or("PYTHONPATH", "").empty()) {
    options.tell(Told::kNews, "PYTHONPATH is set, and packages there hide those of the environment");
  }
  context.out << fmt::format("{0} is ready{2}. Next:\n\n  yoke env run {1} -- python\n  . {0}/bin/activate\n",
                             created.folder.string(), args.target, created.promised);
  return kExitOk;
}

// ---- list, remove, run ----------------------------------------------------------------------------------------------

int show_environments(bool json, Context& context) {
  const auto listed = environment::list_environments(context.environment);
  if (json) {
    const auto to_json = [](const auto& one) -> Json {
      return {{"name", one.name},
              {"folder", one.folder.string()},
              {"state", name(one.state)},
              {"python", one.python.empty() ? Json() : Json(one.python)},
              {"packages", one.mark.packages},
              {"index_url", one.mark.index_url.empty() ? Json() : Json(one.mark.index_url)},
              {"created", one.mark.created}};
    };
    print_json(Json{{"environments", json_list(listed, to_json)}}, context);
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
                          {.title = "FOLDER", .drop_order = 1}}};
  for (const auto& one : listed) {
    table.rows.push_back({one.name, std::string(name(one.state)), one.python.empty() ? "?" : one.python,
                          fmt::format("{}", fmt::join(one.mark.packages, " ")), one.folder.string()});
  }
  context.out << to_text(table, output_width(context));
  return kExitOk;
}

int run_in_environment(Context& context) {
  auto words = context.rest;
  if (words.empty()) refuse("say which environment, and what to run in it");
  const auto folder = environment::folder_of(words[0], context.environment);
  words.erase(words.begin());
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) refuse("say what to run, as in `yoke env run NAME -- python`");
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
  auto& args = add_args<EnvCreateArgs>(cmd, context, create_environment);
  add_value(cmd, "NAME", args.target, "", "A name, or a folder (with a slash) that is new or empty")->required();
  add_value(cmd, "-r,--requirements", args.requirements, "FILE", "Install what this file names, as pip does");
  add_values(cmd, "--with", args.with, "torch|torchvision|torchaudio|tensorflow",
             "Install the build of a framework that fits the drivers of this machine")
      ->delimiter(',')
      ->check([](const std::string& word) -> std::string {
        for (const char* const known : {"torch", "torchvision", "torchaudio", "tensorflow"}) {
          if (word == known) return "";
        }
        return word +
               ": give torch, torchvision, torchaudio or tensorflow, with commas between them; other packages go "
               "into a file for -r";
      });
  add_value(cmd, "--python", args.python, "PROGRAM", "The Python to use, by name or path")->capture_default_str();
  add_value(cmd, "--index-url", args.index_url, "URL",
            "Take the framework from this index, such as a mirror of PyTorch's");
  cmd.add_flag("--print", args.prints, "Print the commands, a line for each, and run none");
  add_device_options(cmd, args.device);
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
  auto& json = add_args<bool>(*list, context, show_environments);
  list->add_flag("--json", json, "Print JSON");
  list->footer(examples("  yoke env list --json"));

  auto* const remove = cmd.add_subcommand("remove", "Remove an environment that yoke has made");
  auto target = std::make_shared<std::string>();
  add_value(*remove, "NAME", *target, "", "A name, or a folder (with a slash)")->required();
  remove->footer(
      examples("  yoke env remove work\n"
               "\n"
               "A folder that `yoke env create` has not made stays as it is."));
  remove->callback([target, &context] {
    environment::remove_environment(environment::folder_of(*target, context.environment));
    context.exit_code = kExitOk;
  });

  auto* const run = cmd.add_subcommand("run", "Run a program in an environment");
  add_program(*run, "ENV", "The environment, a name or a folder, then the program and its arguments");
  run->footer(
      examples("  yoke env run work -- python train.py\n"
               "  yoke claim -n 2 -- yoke env run work -- python train.py\n"
               "\n"
               "Exit status: the program's; 127 if it is not found, 126 if it cannot be executed."));
  run->callback([&context] { context.exit_code = run_in_environment(context); });
}

}  // namespace yoke::cli
