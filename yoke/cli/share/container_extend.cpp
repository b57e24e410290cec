// `yoke container extend`: add Python packages on top of an image, which stays as it is.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/build.h"
#include "yoke/container/extend.h"
#include "yoke/device/process/info.h"
#include "yoke/program/private_folder.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;
using container::EngineKind;

struct ExtendImageArgs {
  std::string image, engine, output, requirements, wheels, network;
  std::vector<std::string> packages;
};

fs::path existing(const char* option, const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return fs::absolute(path).lexically_normal();
  throw Error(ErrorCode::kNotFound, "{} {}: there is no such file or folder", option, printable(path));
}

/// The image's own name, without folders, registry, tag and suffix.
std::string stem_of(const std::string& image) {
  auto name = std::string(base_name(image));
  name = name.substr(0, name.find_first_of(":@"));
  return name.ends_with(".sif") ? name.substr(0, name.size() - 4) : name;
}

/// Where the environment is in a derived image. The name is new, because the image may be a derived one itself.
std::string new_place() { return fmt::format("{}-{}", container::kExtensionInside, random_digits(8)); }

fs::path output_file(const ExtendImageArgs& args) {
  fs::path file = args.output.empty() ? stem_of(args.image) + "-extension.sqsh" : args.output;
  file = fs::absolute(file).lexically_normal();
  std::error_code ignored;
  if (!fs::is_directory(file.parent_path(), ignored)) {
    throw Error(ErrorCode::kNotFound, "-o {}: there is no folder {}", printable(args.output),
                printable(file.parent_path().native()));
  }
  return file;
}

void make_environment(const container::Engine& engine, const container::ExtendRequest& request, Context& context) {
  const auto client = container::plan_extension(engine, request, context.environment);
  const int status = run_visibly(client.argv, client.environment(context.environment));
  if (status == 0) return;
  if (status == 127) {
    throw Error(ErrorCode::kFailedPrecondition, "{} has no python3, or {} could not start it; its message is above",
                printable(request.image), container::name(engine.kind));
  }
  throw Error(ErrorCode::kUnavailable, "the packages could not be installed in {}; the message of pip or {} is above",
              printable(request.image), container::name(engine.kind));
}

int pack_squashfs(const fs::path& folder, const fs::path& environment, const fs::path& file, Context& context) {
  const auto program = find_tool("mksquashfs", context.environment);
  if (!program) {
    throw Error(ErrorCode::kFailedPrecondition,
                "mksquashfs, which packs the extension, is not installed; install the package squashfs-tools");
  }
  const auto packed = folder / "extension.sqsh";
  const int status =
      run_visibly({program->native(), environment.native(), packed.native(), "-noappend", "-all-root", "-no-xattrs"},
                  context.environment);
  if (status != 0) {
    throw Error(ErrorCode::kUnavailable, "mksquashfs could not write {}; its message is above",
                printable(packed.native()));
  }
  fs::rename(packed, file);  // in the same folder's file system
  context.out << file.native() << '\n';
  std::cerr << speaker(context) << "use it by `yoke container run --extension " << printable(file.native()) << "`\n";
  return kExitOk;
}

int extend_image(const ExtendImageArgs& args, Context& context) {
  if (args.packages.empty() && args.requirements.empty()) {
    refuse("say which packages, as in --pip rich, or -r requirements.txt");
  }
  const auto rules = container::read_rules(context.environment);
  const auto full = container::full_image_name(args.image);
  const auto engine = choose_engine(
      {.chosen = container::parse_engine_kind(args.engine), .site = rules.default_engine, .image = full}, context);
  const bool is_file = engine.kind == EngineKind::kApptainer;
  container::ExtendRequest request{.image = container::image_for(engine.kind, full), .packages = args.packages};
  if (!args.requirements.empty()) request.requirements = existing("-r", args.requirements);
  if (!args.wheels.empty()) request.wheels = existing("--wheels", args.wheels);
  if (!args.network.empty()) request.network = args.network;
  request.uid = geteuid();
  request.gid = getegid();
  request.inside = is_file ? container::kExtensionInside : new_place();
  const auto name = is_file
                        ? output_file(args).native()
                        : container::built_image_name(rules, device::user_name(geteuid()),
                                                      args.output.empty() ? stem_of(full) + "-extended" : args.output);
  auto facts = container::find_image(engine, request.image, context.environment);
  if (!facts) {
    container::pull_image(engine, request.image, context.environment);
    facts = container::find_image(engine, request.image, context.environment);
  }
  if (!facts) throw Error(ErrorCode::kUnavailable, "{} was downloaded and is not there", printable(request.image));

  const HeldSignals signals;  // they act when nothing is left of an extension that did not come about
  // /var/tmp, because packages may be larger than the memory that /tmp is often made of.
  const program::PrivateFolder folder(
      is_file ? fs::path(name).parent_path() : fs::path(context.environment.value_or("TMPDIR", "/var/tmp")),
      "extension");
  const auto build = folder.path() / "build";
  request.folder = build / "venv";
  request.temporary = folder.path() / "tmp";
  fs::create_directories(request.folder);
  fs::create_directories(request.temporary);
  make_environment(engine, request, context);
  signals.check();
  if (is_file) return pack_squashfs(folder.path(), request.folder, name, context);

  const auto recipe = build / "Containerfile";
  const auto text = container::containerfile_of(request.image, *facts, request.inside);
  replace_file(recipe, text);
  const auto argv = container::plan_build(engine, {.folder = build, .name = name, .recipe = recipe});
  if (run_visibly(argv, context.environment) != 0) {
    throw Error(ErrorCode::kUnavailable, "{} could not make the image {}; its message is above",
                container::name(engine.kind), name);
  }
  context.out << name << '\n';
  return kExitOk;
}

}  // namespace

void add_container_extend(CLI::App& cmd, Context& context) {
  auto& args = add_args<ExtendImageArgs>(cmd, context, extend_image);
  cmd.add_option("IMAGE", args.image, "An image with Python; it is not changed")->required();
  add_values(cmd, "--pip", args.packages, "PACKAGE",
             "A package as for pip, such as rich or 'rich>=13'; may be repeated");
  add_value(cmd, "-r,--requirement", args.requirements, "FILE", "A file with a list of packages");
  add_value(cmd, "--wheels", args.wheels, "DIR", "Take packages from the files in this folder, and use no network");
  add_value(cmd, "-o,--output", args.output, "NAME",
            "The new image, by default USER/IMAGE-extended; for Apptainer a file, by default IMAGE-extension.sqsh");
  add_value(cmd, "--network", args.network, "NETWORK", "The engine's network for the download: host, or a name");
  add_value(cmd, "--engine", args.engine, "podman|docker|apptainer",
            "Which engine; otherwise the site's, or else the first that works");
  cmd.footer(
      examples("  yoke container extend ngc/pytorch:25.05-py3 --pip lightning -o pytorch-lightning\n"
               "  yoke container run ada/pytorch-lightning -- python train.py\n"
               "  yoke container extend lab.sif -r requirements.txt -o lab-extension.sqsh\n"
               "  yoke container run --extension lab-extension.sqsh lab.sif -- python train.py\n"
               "\n"
               "pip runs in the image, so packages that the image has are not installed again. Prints the name of the\n"
               "new image or file; what pip and the engine print is on standard error."));
}

}  // namespace yoke::cli
