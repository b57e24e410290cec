#include "yoke/environment/kernel_spec.h"

#include <algorithm>
#include <iterator>
#include <regex>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/environment/store.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;

constexpr int kSpecVersion = 1;

std::vector<std::string> argv_of(const KernelRequest& request) {
  std::vector<std::string> argv;
  const auto& devices = request.devices;
  if (devices.is_claimed() || request.container) {
    argv = {request.yoke, "jupyter", "start", "--name", request.name};
    if (request.container) {
      const auto& options = request.container->options;
      argv.insert(argv.end(), {"--image", request.container->image});
      argv.insert(argv.end(), options.begin(), options.end());
    }
    if (devices.num_devices) argv.insert(argv.end(), {"--claim", std::to_string(*devices.num_devices)});
    if (!devices.chosen.empty()) argv.insert(argv.end(), {"--devices", devices.chosen});
    if (!devices.length.empty()) argv.insert(argv.end(), {"--for", devices.length});
    argv.emplace_back("--");
  }
  argv.push_back(request.python);
  if (request.language == Language::kCpp) {
    argv.insert(argv.end(), {request.kernels_folder + "/yoke_cpp_kernel.py", request.cpp_folder});
  } else {
    argv.insert(argv.end(), {"-m", "ipykernel_launcher"});
  }
  argv.insert(argv.end(), {"-f", "{connection_file}"});
  return argv;
}

fs::path spec_file(const fs::path& folder) { return folder / "kernel.json"; }

/// Jupyter replaces $NAME and ${NAME} in values of variables, and $$ by $ (string.Template.safe_substitute()).
std::string literal(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '$' ? "$$" : std::string(1, c);
  return result;
}

std::optional<Kernel> read_kernel(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return std::nullopt;
  try {
    auto kernel = parse_kernel(read_regular_file(spec_file(folder), 1 << 20));
    if (kernel) {
      kernel->name = folder.filename().string();
      kernel->folder = folder;
    }
    return kernel;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string kernel_json(const KernelRequest& request) {
  Json json = {{"argv", argv_of(request)},
               {"display_name", request.display_name.empty() ? request.name : request.display_name},
               {"language", request.language == Language::kCpp ? "c++" : "python"}};
  if (!request.environment.empty()) {
    const auto folder = literal(request.environment);
    json["env"] = {{"VIRTUAL_ENV", folder}, {"PATH", folder + "/bin:${PATH}"}};
  }
  if (request.container) {
    for (const auto& [name, value] : request.container->variables) json["env"][name] = literal(value);
  }
  // Jupyter signals the process group. `yoke jupyter start` would pass on a signal that the kernel has got already.
  const bool has_parent = request.devices.is_claimed() || request.container;
  if (has_parent || request.language == Language::kCpp) json["interrupt_mode"] = "message";
  const auto& devices = request.devices;
  json["metadata"] = {{"debugger", request.language == Language::kPython},
                      {"yoke",
                       {{"version", kSpecVersion},
                        {"python", request.python},
                        {"environment", request.environment},
                        {"image", request.container ? request.container->image : ""},
                        {"num_devices", devices.num_devices ? Json(*devices.num_devices) : Json()},
                        {"devices", devices.chosen},
                        {"for", devices.length}}}};
  return json.dump(2) + "\n";
}

bool is_read_by_server(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {"YOKE_",    "CUDA_", "NVIDIA_",   "ROCR_",      "HIP_",
                                            "JUPYTER_", "JPY_",  "APPTAINER", "SINGULARITY"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

void check_kernel_name(std::string_view name) {
  static const std::regex kName("[a-z0-9][a-z0-9._-]{0,63}");
  if (std::regex_match(name.begin(), name.end(), kName)) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "'{}' cannot be the name of a kernel: take at most 64 small letters, digits, '.', '_' and '-', a letter or "
      "digit first; --display-name may be any text",
      printable(name));
}

fs::path kernels_folder(const Environment& environment) {
  const auto jupyter = environment.value_or("JUPYTER_DATA_DIR", "");
  return (jupyter.empty() ? data_home(environment) / "jupyter" : fs::path(jupyter)) / "kernels";
}

std::optional<Kernel> parse_kernel(std::string_view text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("metadata") || !json["metadata"].is_object()) return std::nullopt;
  const auto& metadata = json["metadata"];
  if (!metadata.contains("yoke") || !metadata["yoke"].is_object()) return std::nullopt;
  const auto& mark = metadata["yoke"];
  if (!mark.contains("version") || mark["version"] != kSpecVersion) return std::nullopt;
  Kernel kernel{.display_name = text_member(json, "display_name"),
                .python = text_member(mark, "python"),
                .environment = text_member(mark, "environment"),
                .image = text_member(mark, "image"),
                .language = text_member(json, "language")};
  kernel.devices.chosen = text_member(mark, "devices");
  kernel.devices.length = text_member(mark, "for");
  if (mark.contains("num_devices") && mark["num_devices"].is_number_integer()) {
    kernel.devices.num_devices = mark["num_devices"].get<int64_t>();
  }
  return kernel;
}

std::vector<Kernel> list_kernels(const fs::path& folder) {
  std::vector<Kernel> kernels;
  for (const auto& entry : entries_of(folder)) {
    if (auto kernel = read_kernel(entry)) kernels.push_back(std::move(*kernel));
  }
  std::sort(kernels.begin(), kernels.end(), [](const Kernel& a, const Kernel& b) { return a.name < b.name; });
  return kernels;
}

fs::path cpp_folder(const std::string& name, const Environment& environment) {
  check_kernel_name(name);
  return data_home(environment) / "yoke" / "cpp-kernel" / name;
}

void check_free(const std::string& name, const fs::path& folder) {
  check_kernel_name(name);
  const auto target = folder / name;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error)) || read_kernel(target)) return;
  if (fs::is_directory(fs::symlink_status(target, error)) && fs::is_empty(target, error)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "there is a kernel {} already that yoke has not made, so it stays; give another name by --name",
              target.string());
}

void check_not_hidden(const std::string& name, const std::vector<fs::path>& environments) {
  constexpr const char* kNative = "python3";  // NATIVE_KERNEL_NAME in jupyter_client/kernelspec.py
  if (name == kNative) {
    throw Error(ErrorCode::kInvalidArgument,
                "--name {}: each environment with ipykernel has a kernel of that name, which its Jupyter prefers; give "
                "another name, and what is shown by --display-name",
                name);
  }
  for (const auto& environment : environments) {
    const auto theirs = environment / "share/jupyter/kernels" / name / "kernel.json";
    std::error_code error;
    // In a virtual environment, its own kernels come before those of the user (jupyter_path() in
    // jupyter_core/paths.py).
    if (!fs::exists(environment / "pyvenv.cfg", error) || !fs::exists(theirs, error)) continue;
    throw Error(ErrorCode::kInvalidArgument, "--name {}: {} has that name, and Jupyter prefers it; give another name",
                name, theirs.string());
  }
}

fs::path install_kernel(const KernelRequest& request, const fs::path& folder) {
  check_free(request.name, folder);
  const auto target = folder / request.name;
  std::error_code error;
  fs::create_directories(target, error);
  if (error) throw system_error(error.value(), "making the folder " + target.string());
  const bool is_private = request.container && !request.container->variables.empty();
  replace_file(spec_file(target), kernel_json(request), is_private ? 0600 : 0666);
  return target;
}

void remove_kernel(const std::string& name, const Environment& environment) {
  check_kernel_name(name);
  const auto folder = kernels_folder(environment);
  const auto target = folder / name;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error))) {
    throw Error(ErrorCode::kNotFound, "there is no kernel {} in {}; see `yoke jupyter list`", name, folder.string());
  }
  const auto kernel = read_kernel(target);
  if (!kernel) {
    throw Error(ErrorCode::kFailedPrecondition,
                "yoke has not made the kernel {}, so it stays; `jupyter kernelspec remove` removes any kernel",
                target.string());
  }
  fs::remove(spec_file(target), error);
  if (error) throw system_error(error.value(), "removing " + spec_file(target).string());
  if (kernel->language == "c++") fs::remove_all(cpp_folder(name, environment), error);
  fs::remove(target, error);  // a picture that the user has added stays, and Jupyter ignores its folder
}

}  // namespace yoke::environment
