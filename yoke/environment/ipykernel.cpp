#include "yoke/environment/ipykernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/environment/pip.h"

namespace yoke::environment {

namespace fs = std::filesystem;

namespace {

constexpr int kLacksIt = 42, kIsBroken = 43;
/// Imports ipykernel as a kernel does, without the modules of the working folder: an argument of `python -c`. Its exit
/// status is kLacksIt or kIsBroken if that is so; then the reason is on standard error. `interrupt_mode` needs
/// version 6.
constexpr const char* kTryIpykernel = R"(import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.util
if importlib.util.find_spec('ipykernel') is None: sys.exit(42)
try:
    import ipykernel, ipykernel.kernelapp
    if ipykernel.version_info[0] < 6: raise ImportError(f'ipykernel {ipykernel.__version__} is older than 6')
except Exception as error:
    print(f'{type(error).__name__}: {error}', file=sys.stderr)
    sys.exit(43))";

}  // namespace

void require_ipykernel(const PythonToAsk& asked, bool installs) {
  const auto& python = asked.python;
  const auto try_it = [&] { return run_quietly({python, "-c", kTryIpykernel}, asked.environment); };
  auto tried = try_it();
  if (tried.status == 0) return;
  const std::vector<std::string> install = {python, "-m", "pip", "install", "--disable-pip-version-check", "ipykernel"};
  if (installs && tried.status == kLacksIt) {
    const auto settings = ask_python(asked, {"--settings"}).settings;
    const auto variables = pip_environment(asked.environment, settings, Indices::kAll);
    run_step({.argv = install}, python, variables, STDERR_FILENO);
    tried = try_it();
    if (tried.status == 0) return;
  }
  if (tried.status == kLacksIt) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} lacks the package ipykernel, which runs its cells; add --install-ipykernel, or run: {}", python,
                fmt::join(install, " "));
  }
  const auto lines = lines_of(tried.err);
  throw Error(ErrorCode::kFailedPrecondition, "{} cannot import ipykernel, which runs its cells ({}); try: {}", python,
              lines.empty() ? describe_end(tried.status) : printable(lines.back()), fmt::join(install, " "));
}

void require_ipykernel_in_image(const KernelRequest& request, const std::string& name, const Environment& environment) {
  const auto& [image, options, variables] = *request.container;
  std::vector<std::string> words = {request.yoke, "container", "run", "--gpu", "none", "--network", "host"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {image, "--", request.python, "-c", kTryIpykernel});
  auto with_variables = environment;
  for (const auto& [variable, value] : variables) with_variables.set(variable, value);
  const int status = run_visibly(words, with_variables);
  if (status == 0) return;
  if (status == kLacksIt) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} lacks the package ipykernel, which runs its cells; add it: yoke container extend {} --pip ipykernel",
        printable(name), printable(image));
  }
  if (status == kIsBroken) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} cannot import ipykernel, which runs its cells, for the reason above; what it needs is added by: yoke "
        "container extend {} --pip ipykernel",
        printable(name), printable(image));
  }
  constexpr int kNoProgram = 127;
  throw Error(ErrorCode::kFailedPrecondition, "{}{}", printable(image),
              status == kNoProgram ? " has no python3, in which a kernel could run"
                                   : fmt::format(": a container of it did not run python3 (exit status {})", status));
}

void prepare_cpp(KernelRequest& request, const Environment& environment, const Tell& tell) {
  const auto folder = cpp_folder(request.name, environment);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
  request.cpp_folder = folder.string();
  const auto prefix = fs::path(request.yoke).parent_path().parent_path().string();
  tell(Told::kNews, "compiling <yoke/train.h>, which takes about a minute");
  run_step(
      {.kind = Step::Kind::kCompile,
       .argv = {request.python, request.kernels_folder + "/yoke_cpp_kernel.py", folder.string(), "--prepare", prefix}},
      folder.string(), environment, STDERR_FILENO);
}

}  // namespace yoke::environment
