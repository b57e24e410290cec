// `yoke new`: create a training program from the example that comes with yoke.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

/// Returns the name of the folder. Errors  kInvalidArgument: CMake does not accept it as the name of a target.
std::string project_name(const fs::path& target) {
  constexpr std::array kReserved = {"all",  "clean",          "edit_cache", "help",          "install", "package",
                                    "test", "package_source", "preinstall", "rebuild_cache", "yoke"};
  auto name = fs::absolute(target).lexically_normal().filename().string();
  if (name.empty()) name = fs::absolute(target).lexically_normal().parent_path().filename().string();  // for "dir/"
  static const std::regex kName("[A-Za-z_][A-Za-z0-9_.+-]*");
  if (std::regex_match(name, kName) && std::ranges::find(kReserved, name) == kReserved.end()) return name;
  refuse(
      "'{}' cannot be the name of a program in CMake: take letters, digits, '_', '-' and '.', a letter first, "
      "and none of CMake's own names (test, install, ...)",
      name);
}

/// Replaces "first" by the project's name in the copied files of the example.
void rename_project(const fs::path& folder, const std::string& name) {
  static const std::regex kFirst(R"(((?:project|add_executable|target_link_libraries)\(|build/|runs/|")first\b)");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto text = read_file(entry.path());
    const auto renamed = std::regex_replace(text, kFirst, "$1" + name);
    if (renamed != text) replace_file(entry.path(), renamed);
  }
}

int run_new(const std::string& target, Context& context) {
  const auto name = project_name(target);
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
  rename_project(target, name);
  context.out << fmt::format(
      "{0} holds a training program of your own, {2}. Next:\n"
      "\n"
      "  cd {0}\n"
      "  cmake -B build -DCMAKE_PREFIX_PATH={1}\n"
      "  cmake --build build\n"
      "  yoke run -n 2 -- build/{2}\n",
      target, context.installation.executable.parent_path().parent_path().string(), name);
  return kExitOk;
}

}  // namespace

void add_new(CLI::App& cmd, Context& context) {
  auto& target = add_args<std::string>(cmd, context, run_new);
  add_value(cmd, "DIR", target, "", "A folder that does not exist yet, or is empty; the program is called as it is")
      ->required();
  cmd.footer(examples("  yoke new my-training    a CMake project, my-training, that trains a network on all ranks"));
}

}  // namespace yoke::cli
