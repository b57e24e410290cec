// `yoke container build`: build an image with a name that the site allows.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/build.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

struct ContainerBuildArgs {
  std::string engine, name, file, folder = ".";
  std::vector<std::string> arguments;
  bool prints = false, json = false;
};

/// The only file in the folder whose name ends with ".def". Errors  kInvalidArgument: there is none, or several.
std::filesystem::path find_definition(const std::filesystem::path& folder) {
  std::optional<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".def") continue;
    if (found) refuse("{} has several definition files; choose one by -f", printable(folder.native()));
    found = entry.path();
  }
  if (found) return *found;
  refuse("{} has no definition file of Apptainer (*.def); name it by -f", printable(folder.native()));
}

int run_container_build(const ContainerBuildArgs& args, Context& context) {
  if (args.json && !args.prints) refuse("--json is for --print");
  const auto rules = container::read_rules(context.environment);
  container::EngineWish wish{.chosen = container::parse_engine_kind(args.engine), .site = rules.default_engine};
  if (args.engine.empty() && (args.file.ends_with(".def") || args.name.ends_with(".sif"))) {
    wish.chosen = container::EngineKind::kApptainer;
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(args.folder, ignored)) {
    throw Error(ErrorCode::kNotFound, "{} is not a folder; the build needs the folder that its recipe copies from",
                printable(args.folder));
  }
  container::BuildRequest request{.folder = args.folder, .name = args.name, .arguments = args.arguments};
  if (!args.file.empty()) request.recipe = args.file;
  if (request.recipe && !std::filesystem::exists(*request.recipe, ignored)) {
    throw Error(ErrorCode::kNotFound, "-f {}: there is no such file", printable(args.file));
  }
  if (request.name.empty()) {
    request.name = container::image_name_of_folder(std::filesystem::absolute(args.folder).lexically_normal());
  }
  // Before the engine is asked anything, unless that decides what kind of name it is.
  const auto user = device::user_name(geteuid());
  const bool is_file = (wish.chosen ? wish.chosen : wish.site) == container::EngineKind::kApptainer;
  if (!is_file) request.name = container::built_image_name(rules, user, request.name);
  const auto engine = choose_engine(wish, context);
  if (engine.kind == container::EngineKind::kApptainer) {
    if (!is_file) request.name = base_name(request.name);
    if (!request.name.ends_with(".sif")) request.name += ".sif";
    if (!request.recipe) request.recipe = find_definition(request.folder);
  }
  const auto has = [&](const char* name) { return std::filesystem::exists(request.folder / name, ignored); };
  if (!request.recipe && container::needs_name(engine.kind, has("Dockerfile"), has("Containerfile"))) {
    request.recipe = request.folder / "Containerfile";
  }
  const auto argv = container::plan_build(engine, request);
  if (args.prints) {
    if (args.json) {
      print_json(nlohmann::json(argv), context);
    } else {
      for (const auto& word : argv) context.out << word << '\n';
    }
    return kExitOk;
  }
  context.out.flush();
  execvp(argv[0].c_str(), exec_pointers(argv).data());
  throw system_error(errno, "executing " + argv[0]);
}

}  // namespace

void add_container_build(CLI::App& cmd, Context& context) {
  auto& args = add_args<ContainerBuildArgs>(cmd, context, run_container_build);
  cmd.add_option("DIR", args.folder, "The folder from which the recipe copies files")->capture_default_str();
  add_value(cmd, "-t,--tag", args.name, "NAME[:TAG]",
            "The image's name; a short one becomes USER/NAME. Otherwise the folder's name");
  add_value(cmd, "-f,--file", args.file, "FILE",
            "The recipe: a Containerfile, or for Apptainer a definition file (*.def)");
  add_values(cmd, "--build-arg", args.arguments, "NAME=VALUE", "Set a variable that the recipe declares");
  add_value(cmd, "--engine", args.engine, "podman|docker|apptainer",
            "Which engine; otherwise the site's, or else the first that works");
  cmd.add_flag("--print", args.prints, "Print the engine's command line, an argument a line, and build nothing");
  cmd.add_flag("--json", args.json, "With --print: print a JSON list");
  cmd.footer(
      examples("  yoke container build                        ada/NAME, from the Containerfile in this folder\n"
               "  yoke container build -t train:2 ~/train     ada/train:2\n"
               "  yoke container build -f train.def -t train.sif\n"
               "\n"
               "Names of images must follow the site's rule, by default {user}/{name}; others are refused. Files of\n"
               "Apptainer may have any name.\n"
               "\n"
               "Exit status: the engine's; 64 if the name breaks the rule."));
}

}  // namespace yoke::cli
