// `yoke container packages`: the Python packages of images side by side.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/config.h"
#include "yoke/container/packages.h"

namespace yoke::cli {
namespace {

struct PackageArgs {
  std::string engine;
  std::vector<std::string> images;
  container::PackageView view;
  bool json = false, csv = false;
};

nlohmann::ordered_json packages_json(const container::ImagePackages& image,
                                     const std::vector<std::string>& shown_names) {
  Json packages = Json::array();
  for (const auto& package : image.packages) {
    if (!std::binary_search(shown_names.begin(), shown_names.end(), container::normal_name(package.name))) continue;
    packages.push_back({{"name", package.name}, {"version", package.version}, {"folder", package.folder}});
  }
  return {{"image", image.image},
          {"error", image.error ? Json(*image.error) : Json()},
          {"pythons", image.pythons},
          {"packages", std::move(packages)}};
}

int show_packages(const PackageArgs& args, Context& context) {
  if (args.json && args.csv) refuse("give --json or --csv, not both");
  const auto rules = container::read_rules(context.environment);
  ProgressLine progress(context.environment);
  const auto num_images = args.images.size();
  const auto show = [&](size_t num_read) {
    progress.show(fmt::format("{} of {} {} read", num_read, num_images, num_images == 1 ? "image" : "images"));
  };
  show(0);
  const auto images = container::read_packages(
      args.images,
      {.reader = context.installation.libexec / "container-packages",
       .engine = {.chosen = container::parse_engine_kind(args.engine), .site = rules.default_engine},
       .on_read = show},
      context.environment);
  progress.clear();
  auto view = args.view;
  if (args.json) view.shows_all = true;
  auto compared = container::compare_packages(images, view);
  if (args.json) {
    std::vector<std::string> names;
    for (const auto& row : compared.table.rows) names.push_back(row[0]);
    std::sort(names.begin(), names.end());
    const auto to_json = [&](const auto& image) { return packages_json(image, names); };
    print_json(Json{{"images", json_list(images, to_json)}}, context);
  } else if (args.csv) {
    context.out << to_csv(compared.table);
  } else {
    context.out << to_text(compared.table, output_width(context));
    if (compared.num_same > 0) {
      context.out << fmt::format("{} {} the same in all images; --all shows them\n", compared.num_same,
                                 compared.num_same == 1 ? "package is" : "packages are");
    }
  }
  context.out.flush();
  bool is_complete = true;
  for (const auto& image : images) {
    if (!image.error) continue;
    is_complete = false;
    std::cerr << speaker(context) << printable(image.image) << ": " << printable(*image.error) << '\n';
  }
  return is_complete ? kExitOk : exit_status(ErrorCode::kUnavailable);
}

}  // namespace

void add_container_packages(CLI::App& cmd, Context& context) {
  auto& args = add_args<PackageArgs>(cmd, context, show_packages);
  cmd.add_option("IMAGE", args.images, "Images on this machine, and .sif files or folders of Apptainer")->required();
  add_values(cmd, "--grep", args.view.patterns, "TEXT", "Show the packages whose name contains TEXT, in any case");
  cmd.add_flag("--all", args.view.shows_all, "Also show packages that are the same in all images");
  add_value(cmd, "--engine", args.engine, "podman|docker|apptainer",
            "Which engine; otherwise the site's, or else the first that works");
  cmd.add_flag("--json", args.json, "Print JSON, with all packages and the folder of each");
  cmd.add_flag("--csv", args.csv, "Print the table as CSV");
  cmd.footer(examples(
      "  yoke container packages ada/train             all packages of an image\n"
      "  yoke container packages *.sif                 those that differ\n"
      "  yoke container packages *.sif --grep lightning --grep torch\n"
      "\n"
      "No program of an image runs: a small program of yoke reads the metadata of all Pythons in it. An image\n"
      "with several Pythons may have several versions of a package. Images are not downloaded.\n"
      "\n"
      "Exit status: 75 if an image could not be read; the others are shown."));
}

}  // namespace yoke::cli
