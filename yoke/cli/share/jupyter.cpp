// `yoke jupyter`: install kernels of Jupyter that run in an environment and hold a claim while they live.
#include "yoke/cli/share/jupyter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/container/image.h"
#include "yoke/contract/variables.h"
#include "yoke/environment/ipykernel.h"
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
  std::string env, image;
  ContainerOptions container;  ///< Those of add_container_options().
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

/// Environments in which the server may run: the one of the kernel, and that of the Jupyter in PATH.
std::vector<fs::path> likely_servers(const environment::KernelRequest& request, const Context& context) {
  std::vector<fs::path> result;
  if (!request.environment.empty()) result.emplace_back(request.environment);
  std::error_code error;
  if (const auto jupyter = find_tool("jupyter", context.environment)) {
    result.push_back(fs::canonical(*jupyter, error).parent_path().parent_path());
  }
  return result;
}

void check_image_options(const JupyterArgs& args) {
  const auto& options = args.container;
  if (args.image.empty()) {
    if (options.engine.empty() && options.extension.empty() && options.volumes.empty() && options.variables.empty()) {
      return;
    }
    refuse("--engine, --extension, -v and -e are for a container; give --image too");
  }
  if (!args.env.empty()) refuse("a kernel runs in an environment or in an image; give --env or --image, not both");
  if (args.is_cpp) refuse("a kernel for cells in C++ runs in no container; leave out --cpp or --image");
  if (args.installs_ipykernel) {
    refuse("an image stays as it is; `yoke container extend IMAGE --pip ipykernel` makes one with the package");
  }
}

/// The container for the kernel specification. Jupyter starts kernels in other folders, so paths become absolute.
environment::KernelContainer kernel_container(const JupyterArgs& args) {
  environment::KernelContainer result{.image = args.image};
  std::error_code error;
  const bool is_file =
      container::names_file(args.image) || args.container.engine == container::name(container::EngineKind::kApptainer);
  if (is_file && fs::exists(args.image, error)) result.image = fs::absolute(args.image).lexically_normal();
  auto& words = result.options;
  const auto& options = args.container;
  if (!options.engine.empty()) words.insert(words.end(), {"--engine", options.engine});
  if (!options.extension.empty()) words.insert(words.end(), {"--extension", fs::absolute(options.extension)});
  for (const auto& text : options.volumes) {
    const auto mount = container::parse_mount(text, fs::current_path());
    words.insert(words.end(),
                 {"-v", fmt::format("{}:{}{}", mount.source, mount.target, mount.is_read_only ? ":ro" : "")});
  }
  for (const auto& variable : options.variables) {
    const auto equals = variable.find('=');
    auto name = variable.substr(0, equals);
    if (equals != variable.npos) {  // all users can read the words of a command line
      if (environment::is_read_by_server(name) || container::is_read_by_clients(name)) {
        name.insert(0, variable::kContainerSetPrefix);
      }
      result.variables.emplace_back(name, variable.substr(equals + 1));
    }
    words.insert(words.end(), {"-e", name});
  }
  return result;
}

/// Errors  kFailedPrecondition: this machine has devices, and fewer than that. A machine without any may share the
/// folder of kernels with one that has some.
void check_count(int64_t num_wanted, Context& context) {
  const auto text = to_descriptor("");
  const int status = with_source({}, context, [&](device::Source& source) {
    const auto num_devices = claim::candidates_of(source.sample({}), {}).size();
    const auto line = std::to_string(num_devices);
    write_all(text.value(), line, "a file in memory");
    return kExitOk;
  });
  const auto num_devices = status == kExitOk ? parse_int(text_of(text)).value_or(0) : 0;
  if (num_devices == 0 || num_wanted <= num_devices) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "--claim {}: this machine has {} {}, so the kernel could never start; ask for fewer", num_wanted,
              num_devices, num_devices == 1 ? "device" : "devices");
}

int install(JupyterArgs args, Context& context) {
  auto& request = args.request;
  environment::check_kernel_name(request.name);
  if (!request.devices.length.empty()) {
    length_of("--for", request.devices.length);
    if (!request.devices.is_claimed()) refuse("--for is the length of a claim; give --claim or --devices too");
  }
  // A kernel whose claim the site refuses could never start, and Jupyter would not say why.
  if (request.devices.is_claimed()) {
    length_of_claim(request.devices.length, claim::read_config(context.environment));
  }
  if (request.devices.num_devices) check_count(*request.devices.num_devices, context);
  if (!request.devices.chosen.empty()) device::DeviceSelection::parse({request.devices.chosen});
  request.language = args.is_cpp ? environment::Language::kCpp : environment::Language::kPython;
  request.yoke = context.installation.executable.string();
  request.kernels_folder = (context.installation.share / "python" / "kernels").string();
  const auto kernels = environment::kernels_folder(context.environment);
  environment::check_free(request.name, kernels);
  check_image_options(args);
  if (args.image.empty()) {
    choose_python(args, context);
    environment::check_not_hidden(request.name, likely_servers(request, context));
    environment::require_ipykernel(
        {request.python, context.installation.share / "python" / "yoke_environment.py", context.environment},
        args.installs_ipykernel);
  } else {
    environment::check_not_hidden(request.name, likely_servers(request, context));
    request.python = "python3";
    request.container = kernel_container(args);
    const auto& extension = args.container.extension;
    environment::require_ipykernel_in_image(request, extension.empty() ? request.container->image : extension,
                                            context.environment);
  }
  if (args.is_cpp) environment::prepare_cpp(request, context.environment, teller(context));
  const auto folder = install_kernel(request, kernels);
  context.out << fmt::format("{} is installed. It is in the list of kernels of Jupyter{}.\n", folder.string(),
                             request.devices.is_claimed() ? ", and claims its devices when it starts" : "");
  return kExitOk;
}

// ---- list -----------------------------------------------------------------------------------------------------------

/// What is missing; empty if nothing is. Engines are not asked for their images, because some take a second to answer.
std::string missing_part(const environment::Kernel& kernel) {
  if (kernel.image.empty()) return is_program(kernel.python) ? "" : kernel.python;
  std::error_code error;
  return !kernel.image.starts_with('/') || fs::exists(kernel.image, error) ? "" : kernel.image;
}

int list_kernels(bool json, Context& context) {
  const auto kernels = environment::list_kernels(environment::kernels_folder(context.environment));
  if (json) {
    const auto to_json = [](const auto& kernel) {
      const auto& devices = kernel.devices;
      return Json{{"name", kernel.name},
                  {"display_name", kernel.display_name},
                  {"language", kernel.language},
                  {"state", missing_part(kernel).empty() ? "ready" : "broken"},
                  {"environment", or_null(kernel.environment)},
                  {"image", or_null(kernel.image)},
                  {"num_devices", or_null(devices.num_devices)},
                  {"devices", or_null(devices.chosen)},
                  {"folder", kernel.folder.string()}};
    };
    print_json(Json{{"kernels", json_list(kernels, to_json)}}, context);
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
                          {.title = "RUNS IN", .shrinks_to = 10}}};
  for (const auto& kernel : kernels) {
    const auto& place = kernel.image.empty() ? kernel.environment : kernel.image;
    const auto missing = missing_part(kernel);
    const auto devices = kernel.image.empty() || kernel.devices.is_claimed() ? devices_text(kernel.devices) : "none";
    table.rows.push_back({kernel.name, kernel.language, missing.empty() ? "ready" : "broken: no " + missing, devices,
                          place.empty() ? kernel.python : place});
  }
  context.out << to_text(table, output_width(context));
  return kExitOk;
}

// ---- init-text ------------------------------------------------------------------------------------------------------

int print_init_text(const JupyterArgs& args, Context& context) {
  const auto executable = shell_quoted(context.installation.executable.string());
  const auto name = shell_quoted(args.request.name);
  if (args.env.empty() == args.image.empty()) {
    refuse("say what notebooks should see: an environment by --env, or an image by --image");
  }
  check_image_options(args);
  if (!args.image.empty()) {
    const auto container = kernel_container(args);
    std::string options, variables;
    for (const auto& word : container.options) options += " " + shell_quoted(word);
    for (const auto& [variable, value] : container.variables) {
      variables += fmt::format("export {}={}\n", variable, shell_quoted(value));
    }
    context.out << fmt::format(
        "# The packages of the image {} in notebooks: a kernel that runs in a container of it.\n"
        "{}{} jupyter install --name {} --image {}{} || true\n",
        printable(container.image), variables, executable, name, shell_quoted(container.image), options);
    return kExitOk;
  }
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
      folder, shell_quoted(folder), executable, name);
  return kExitOk;
}

// ---- the commands ---------------------------------------------------------------------------------------------------

void add_jupyter_install(CLI::App& cmd, Context& context) {
  auto& args = add_args<JupyterArgs>(cmd, context, install);
  auto& request = args.request;
  add_value(cmd, "--name", request.name, "NAME", "The name of the kernel: small letters, digits, '.', '_' and '-'")
      ->required();
  add_value(cmd, "--display-name", request.display_name, "TEXT", "The name that Jupyter shows");
  add_value(cmd, "--env", args.env, "ENV",
            "The environment in which it runs, a name or a folder; otherwise python3 of PATH");
  add_value(cmd, "--image", args.image, "IMAGE", "Run it in a container of this image; see `yoke container`");
  add_container_options(cmd, args.container, "-e,--variable");
  add_kernel_devices(cmd, request.devices);
  cmd.add_flag("--cpp", args.is_cpp, "A kernel for C++ cells, with <yoke/train.h> precompiled");
  cmd.add_flag("--install-ipykernel", args.installs_ipykernel, "Install the package ipykernel if it is missing there");
  cmd.footer(
      examples("  yoke jupyter install --name work --env work --claim 1   one device, claimed while the kernel lives\n"
               "  yoke jupyter install --name pair --devices 0,1          these two\n"
               "  yoke jupyter install --name work --env ./venv --install-ipykernel\n"
               "  yoke jupyter install --name ngc --image ada/pytorch-notebook --claim 1    in a container\n"
               "  yoke jupyter install --name cpp --env work --cpp        cells in C++\n"
               "\n"
               "A kernel of this name is replaced if yoke has installed it; others are never touched."));
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
  auto& json = add_args<bool>(*list, context, list_kernels);
  list->add_flag("--json", json, "Print JSON");
  list->footer(examples("  yoke jupyter list --json"));

  auto* const remove = cmd.add_subcommand("remove", "Remove a kernel that yoke has installed");
  auto name = std::make_shared<std::string>();
  add_value(*remove, "NAME", *name, "", "The kernel")->required();
  remove->footer(examples("  yoke jupyter remove work"));
  remove->callback([name, &context] {
    environment::remove_kernel(*name, context.environment);
    context.exit_code = kExitOk;
  });

  auto* const init = cmd.add_subcommand("init-text", "Print what a web Jupyter's field for an own start script takes");
  auto& args = add_args<JupyterArgs>(*init, context, print_init_text);
  args.request.name = "work";
  add_value(*init, "--env", args.env, "ENV", "The environment, a name or a folder");
  add_value(*init, "--image", args.image, "IMAGE", "The image of a container, instead of an environment");
  add_container_options(*init, args.container, "-e,--variable");
  add_value(*init, "--name", args.request.name, "NAME", "The name of the kernel")->capture_default_str();
  init->footer(
      examples("  yoke jupyter init-text --env work    paste this into the field for custom init\n"
               "  yoke jupyter init-text --image lab.sif"));

  add_jupyter_start(*cmd.add_subcommand("start", "Start a kernel with its claim; Jupyter runs this"), context);
}

}  // namespace yoke::cli
