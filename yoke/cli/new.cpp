// `yoke new`: begin a training program of one's own, from the example that comes with yoke.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

int run_new(const std::string& target, Context& context) {
  const auto source = context.installation.share / "examples" / "first";
  std::error_code error;
  if (!fs::is_directory(source, error)) {
    throw Error(ErrorCode::kFailedPrecondition, "this installation lacks its example {}", source.string());
  }
  if (fs::exists(target, error) && !(fs::is_directory(target, error) && fs::is_empty(target, error))) {
    throw Error(ErrorCode::kFailedPrecondition, "{} exists and is not an empty folder; give another name", target);
  }
  fs::create_directories(target, error);
  if (!error) fs::copy(fs::canonical(source), target, fs::copy_options::recursive, error);
  if (error) throw system_error(error.value(), "writing " + target);
  context.out << fmt::format(
      "{0} holds a training program of your own. Next:\n"
      "\n"
      "  cd {0}\n"
      "  cmake -B build -DCMAKE_PREFIX_PATH={1}\n"
      "  cmake --build build\n"
      "  yoke run -n 2 -- build/first\n",
      target, context.installation.executable.parent_path().parent_path().string());
  return kExitOk;
}

}  // namespace

void add_new(CLI::App& app, Context& context) {
  auto target = std::make_shared<std::string>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("new", "Begin a training program of your own");
  cmd->add_option("DIR", *target, "A folder that does not exist yet, or is empty")->type_name("")->required();
  cmd->footer(examples("  yoke new my-training    a CMake project that trains a network on all ranks"));
  cmd->callback([target, &context] { context.exit_code = run_new(*target, context); });
}

}  // namespace yoke::cli
