#include "recipes/fashion_mnist/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "yoke/train/data/idx.h"

namespace fashion_mnist {
namespace {

/// PREFIX/share/datasets/fashion-mnist, if there is one, of the prefix in which this recipe is installed: there pip's
/// package yoke-fashion-mnist puts the files. Otherwise the folder of Debian's package.
std::filesystem::path default_data() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);  // PREFIX/libexec/yoke/recipes/NAME/NAME
  const auto own = (program.parent_path() / "../../../../share/datasets/fashion-mnist").lexically_normal();
  return std::filesystem::is_directory(own, error) ? own : std::filesystem::path(yoke::train::kFashionMnistDir);
}

}  // namespace

Preset smallest() { return {}; }

Options parse(int argc, char** argv) {
  Options options;
  options.data = default_data().string();
  CLI::App app(
      "Trains a small CNN on Fashion-MNIST, on all ranks of the job that this process belongs to.\n"
      "Usually started by: yoke train fashion-mnist [-n N] [options]",
      "fashion-mnist");
  recipes::add_options(app, options, "fashion-mnist", {"smallest"});
  app.add_option("--data", options.data,
                 "Folder of the gzipped IDX files (pip: yoke-fashion-mnist; Debian: dataset-fashion-mnist)")
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  yoke train fashion-mnist                                  on every device, five epochs\n"
      "  yoke train fashion-mnist -n 2 --epochs 1 --seed 7\n"
      "  yoke train fashion-mnist --resume --out runs/fashion-mnist\n"
      "  yoke train fashion-mnist --precision fp32 --deterministic");
  recipes::parse(app, argc, argv, options);
  return options;
}

}  // namespace fashion_mnist
