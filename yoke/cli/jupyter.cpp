// `yoke jupyter`: install kernels of Jupyter that run in an environment and hold a claim while they live.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/environment_step.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/shell.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/claim.h"
#include "yoke/environment/kernel_spec.h"
#include "yoke/environment/store.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

std::string devices_text(const environment::KernelDevices& devices) {
  auto text = devices.num_devices ? fmt::format("{} claimed", *devices.num_devices) : std::string();
  if (!devices.chosen.empty()) text = (text.empty() ? "" : text + " of ") + devices.chosen;
  return text.empty() ? "as the server" : text;
}

// ---- install --------------------------------------------------------------------------------------------------------

struct JupyterArgs {
  environment::KernelRequest request;
  std::string env;
  bool is_cpp = false, installs_ipykernel = false;
};

void choose_python(JupyterArgs& args, const Context& context) {
  auto& request = args.request;
  if (args.env.empty()) {
    const auto python = find_tool("python3", context.environment);
    if (!python) throw Error(ErrorCode::kNotFound, "there is no python3 in PATH; give an environment by --env");
    request.python = python->string();
    return;
  }
  const auto folder = environment::folder_of(args.env, context.environment);
  request.environment = folder.string();
  request.python = environment::python_of(folder).string();
  if (!is_program(request.python)) {
    throw Error(ErrorCode::kNotFound, "{} does not exist; `yoke env create {}` makes an environment", request.python,
                args.env);
  }
}

void require_ipykernel(const JupyterArgs& args) {
  const auto& python = args.request.python;
  if (has_module(python, "ipykernel")) return;
  const std::vector<std::string> install = {python, "-m", "pip", "install", "--disable-pip-version-check", "ipykernel"};
  if (args.installs_ipykernel) return run_environment_step({.argv = install}, python);
  throw Error(ErrorCode::kFailedPrecondition,
              "{} lacks the package ipykernel, which runs its cells; add --install-ipykernel, or run: {}", python,
              fmt::join(install, " "));
}

/// Compiles what a C++ kernel needs, so that it starts at once.
void prepare_cpp(environment::KernelRequest& request, const Context& context) {
  const auto folder = environment::cpp_folder(request.name, context.environment);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
  request.cpp_folder = folder.string();
  const auto prefix = context.installation.executable.parent_path().parent_path().string();
  std::cerr << speaker(context) << "compiling <yoke/train.h>, which takes about a minute" << std::endl;
  run_environment_step(
      {.kind = environment::Step::Kind::kCompile,
       .argv = {request.python, request.kernels_folder + "/yoke_cpp_kernel.py", folder.string(), "--prepare", prefix}},
      folder.string());
}

int install(JupyterArgs args, Context& context) {
  auto& request = args.request;
  environment::check_kernel_name(request.name);
  if (!request.devices.length.empty()) {
    length_of("--for", request.devices.length);
    if (!request.devices.is_claimed()) {
      throw Error(ErrorCode::kInvalidArgument, "--for is the length of a claim; give --claim or --devices too");
    }
  }
  if (!request.devices.chosen.empty()) device::DeviceSelection::parse({request.devices.chosen});
  request.language = args.is_cpp ? environment::Language::kCpp : environment::Language::kPython;
  request.yoke = context.installation.executable.string();
  request.kernels_folder = (context.installation.share / "python" / "kernels").string();
  choose_python(args, context);
  require_ipykernel(args);
  const auto kernels = environment::kernels_folder(context.environment);
  environment::check_free(request.name, kernels);
  if (args.is_cpp) prepare_cpp(request, context);
  const auto folder = install_kernel(request, kernels);
  context.out << fmt::format("{} is installed. It is in the list of kernels of Jupyter{}.\n", folder.string(),
                             request.devices.is_claimed() ? ", and claims its devices when it starts" : "");
  return kExitOk;
}

// ---- list -----------------------------------------------------------------------------------------------------------

int list_kernels(bool json, Context& context) {
  const auto kernels = environment::list_kernels(environment::kernels_folder(context.environment));
  const auto is_ready = [](const environment::Kernel& kernel) { return is_program(kernel.python); };
  if (json) {
    using SpecJson = nlohmann::ordered_json;
    const auto text_or_null = [](const std::string& text) { return text.empty() ? SpecJson() : SpecJson(text); };
    SpecJson array = SpecJson::array();
    for (const auto& kernel : kernels) {
      const auto& devices = kernel.devices;
      array.push_back({{"name", kernel.name},
                       {"display_name", kernel.display_name},
                       {"language", kernel.language},
                       {"state", is_ready(kernel) ? "ready" : "broken"},
                       {"environment", text_or_null(kernel.environment)},
                       {"num_devices", devices.num_devices ? SpecJson(*devices.num_devices) : SpecJson()},
                       {"devices", text_or_null(devices.chosen)},
                       {"folder", kernel.folder.string()}});
    }
    context.out << SpecJson{{"kernels", array}}.dump(2) << '\n';
    return kExitOk;
  }
  if (kernels.empty()) {
    std::cerr << speaker(context) << "yoke has installed no kernel yet; `yoke jupyter install` does" << std::endl;
    return kExitOk;
  }
  Table table{.columns = {{.title = "NAME"},
                          {.title = "LANGUAGE"},
                          {.title = "STATE"},
                          {.title = "DEVICES"},
                          {.title = "RUNS IN", .shrinks_to = 10}},
              .rows = {}};
  for (const auto& kernel : kernels) {
    const auto& place = kernel.environment;
    table.rows.push_back({kernel.name, kernel.language, is_ready(kernel) ? "ready" : "broken: no " + kernel.python,
                          devices_text(kernel.devices), place.empty() ? kernel.python : place});
  }
  context.out << to_text(table, output_width(context));
  return kExitOk;
}

// ---- start ----------------------------------------------------------------------------------------------------------

struct StartArgs {
  std::string name, devices, length;
  std::optional<int64_t> num_devices;
};

/// Becomes a kernel that answers every cell with `reason`. Without this, Jupyter would only say that a kernel died.
/// Returns the exit status if that fails.
int exec_refusal(const std::string& reason, int status, Context& context) {
  std::cerr << speaker(context) << printable(reason) << std::endl;
  const auto& words = context.rest;
  const auto connection = std::find(words.begin(), words.end(), "-f");
  if (connection == words.end() || connection + 1 == words.end()) return status;
  const auto script = context.installation.share / "python" / "kernels" / "yoke_refusal_kernel.py";
  const std::vector<std::string> argv = {words[0], script.string(), printable(reason), "-f", *(connection + 1)};
  execve(argv[0].c_str(), exec_pointers(argv).data(), exec_pointers(context.environment.to_strings()).data());
  std::cerr << speaker(context) << system_error(errno, "cannot start " + argv[0]).what() << std::endl;
  return status;
}

/// Starts a process that ends this one when the Jupyter server is gone. A kernel looks for the end of the server by
/// itself, but this process is its parent and hides it.
void end_with_server(const Environment& environment) {
  const auto server = parse_int(environment.value_or("JPY_PARENT_PID", ""));
  if (!server || *server != getppid()) return;
  const UniqueFd end(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(*server), 0U)));
  const pid_t keeper = getpid();
  if (!end || getppid() != *server || fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr int kKept = 3;
  if (end.value() != kKept) dup2(end.value(), kKept);
  closefrom(kKept + 1);  // the locks of the claim, too
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.value(), stream);
  for (pollfd news{kKept, POLLIN, 0}; getppid() == keeper;) {
    if (poll(&news, 1, -1) == 1) kill(keeper, SIGTERM);
    if (news.revents != 0) break;
  }
  _exit(0);
}

int start_kernel(const StartArgs& args, Context& context) {
  if (context.rest.empty())
    throw Error(ErrorCode::kInvalidArgument, "say what to start, as `yoke jupyter install` does");
  std::optional<ClaimSite> site;
  std::optional<Acquired> acquired;
  AcquireOptions options;
  int status = kExitOk;
  std::string reason;
  try {
    site.emplace(open_claim_site(context));
    if (!args.devices.empty()) options.device.chosen = {args.devices};
    options.request.wish.num_devices = args.num_devices.value_or(args.devices.empty() ? 1 : 0);
    options.request.length = length_of_claim(args.length, site->config);
    options.request.note.purpose = "notebook " + args.name;
    acquired = acquire(options, *site, context, status);
    reason = "the drivers do not answer, so no device can be claimed; `yoke doctor` says more";
  } catch (const Error& error) {
    status = exit_status(error.code());
    reason = error.what();
    if (const auto at = reason.find("; use --wait"); at != reason.npos)
      reason.replace(at, reason.npos, "; see `yoke claims`");
  }
  if (!acquired) return exec_refusal(reason, status, context);
  end_with_server(context.environment);
  return keep_for_program(*acquired, options, *site, context);
}

// ---- init-text ------------------------------------------------------------------------------------------------------

int print_init_text(const JupyterArgs& args, Context& context) {
  const auto folder = environment::folder_of(args.env, context.environment).string();
  if (!is_program(environment::python_of(folder))) {
    throw Error(ErrorCode::kNotFound, "{} is no environment with a Python that works; see `yoke env list`", folder);
  }
  context.out << fmt::format(
      "# Programs and terminals of this server use the environment {0}.\n"
      "export VIRTUAL_ENV={1}\n"
      "export PATH=\"$VIRTUAL_ENV/bin:$PATH\"\n"
      "unset PYTHONHOME\n"
      "# Its packages in notebooks: a kernel of its own, because the server may have another version of Python.\n"
      "{2} jupyter install --name {3} --env {1}\n",
      folder, shell_quoted(folder), shell_quoted(context.installation.executable.string()),
      shell_quoted(args.request.name));
  return kExitOk;
}

// ---- the commands ---------------------------------------------------------------------------------------------------

void add_kernel_devices(CLI::App& cmd, std::optional<int64_t>& num_devices, std::string& chosen, std::string& length) {
  cmd.add_option("--claim", num_devices, "Claim N devices while the kernel lives")
      ->type_name("N")
      ->check(in_range(1, 128, "devices"));
  cmd.add_option("--devices", chosen, "Claim these devices: ids as in `yoke devices`; with --claim, N of them")
      ->type_name("ID,ID...");
  cmd.add_option("--for", length, "The longest time of the claim, such as 8h; the kernel is then ended")
      ->type_name("TIME");
}

void add_jupyter_install(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<JupyterArgs>();  // CLI11 keeps references to it; the callback owns it
  auto& request = args->request;
  cmd.add_option("--name", request.name, "The name of the kernel: small letters, digits, '.', '_' and '-'")
      ->type_name("NAME")
      ->required();
  cmd.add_option("--display-name", request.display_name, "The name that Jupyter shows")->type_name("TEXT");
  cmd.add_option("--env", args->env, "The environment in which it runs, a name or a folder; otherwise python3 of PATH")
      ->type_name("ENV");
  add_kernel_devices(cmd, request.devices.num_devices, request.devices.chosen, request.devices.length);
  cmd.add_flag("--cpp", args->is_cpp, "A kernel for C++ cells, with <yoke/train.h> precompiled");
  cmd.add_flag("--install-ipykernel", args->installs_ipykernel, "Install the package ipykernel if it is missing there");
  cmd.footer(
      examples("  yoke jupyter install --name work --env work --claim 1   one device, claimed while the kernel lives\n"
               "  yoke jupyter install --name pair --devices 0,1          these two\n"
               "  yoke jupyter install --name work --env ./venv --install-ipykernel\n"
               "  yoke jupyter install --name cpp --env work --cpp        cells in C++\n"
               "\n"
               "A kernel of this name is replaced if yoke has installed it; others are never touched."));
  cmd.callback([args, &context] { context.exit_code = install(*args, context); });
}

void add_jupyter_start(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<StartArgs>();
  auto program = std::make_shared<std::vector<std::string>>();
  cmd.group("");  // Jupyter runs it
  cmd.add_option("--name", args->name, "The name of the kernel")->type_name("NAME");
  add_kernel_devices(cmd, args->num_devices, args->devices, args->length);
  cmd.add_option("PROGRAM", *program, "The kernel and its arguments")->type_name(kProgramArguments)->expected(0, -1);
  cmd.footer(examples("  yoke jupyter start --claim 1 -- python -m ipykernel_launcher -f FILE"));
  cmd.callback([args, program, &context] { context.exit_code = start_kernel(*args, context); });
}

}  // namespace

void add_jupyter(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  cmd.footer(
      examples("  yoke jupyter install --name work --env work --claim 1   a kernel with a device of its own\n"
               "  yoke jupyter list\n"
               "  yoke jupyter remove work"));
  add_jupyter_install(*cmd.add_subcommand("install", "Install a kernel for this user's Jupyter"), context);

  auto* const list = cmd.add_subcommand("list", "List the kernels that yoke has installed");
  auto json = std::make_shared<bool>();
  list->add_flag("--json", *json, "Print JSON");
  list->footer(examples("  yoke jupyter list --json"));
  list->callback([json, &context] { context.exit_code = list_kernels(*json, context); });

  auto* const remove = cmd.add_subcommand("remove", "Remove a kernel that yoke has installed");
  auto name = std::make_shared<std::string>();
  remove->add_option("NAME", *name, "The kernel")->type_name("")->required();
  remove->footer(examples("  yoke jupyter remove work"));
  remove->callback([name, &context] {
    environment::remove_kernel(*name, context.environment);
    context.exit_code = kExitOk;
  });

  auto* const init = cmd.add_subcommand("init-text", "Print what a web Jupyter's field for an own start script takes");
  auto args = std::make_shared<JupyterArgs>();
  args->request.name = "work";
  init->add_option("--env", args->env, "The environment, a name or a folder")->type_name("ENV")->required();
  init->add_option("--name", args->request.name, "The name of the kernel")->type_name("NAME")->capture_default_str();
  init->footer(examples("  yoke jupyter init-text --env work    paste this into the field for custom init"));
  init->callback([args, &context] { context.exit_code = print_init_text(*args, context); });

  add_jupyter_start(*cmd.add_subcommand("start", "Start a kernel with its claim; Jupyter runs this"), context);
}

}  // namespace yoke::cli
