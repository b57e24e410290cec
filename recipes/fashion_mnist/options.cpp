#include "recipes/fashion_mnist/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
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

Options parse(int argc, char** argv) {
  Options options;
  options.data = default_data().string();
  CLI::App app(
      "Trains a small CNN on Fashion-MNIST, on all ranks of the job that this process belongs to.\n"
      "Usually started by: yoke train fashion-mnist [-n N] [options]",
      "fashion-mnist");
  app.option_defaults()->take_last();  // the last value of a repeated option counts, as in `yoke`
  app.add_option("--epochs", options.num_epochs, "Number of passes over all samples")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples of a step, of all ranks together")
      ->check(CLI::Range(int64_t{1}, int64_t{60'000}))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the initial weights and of the order of samples")
      ->capture_default_str();
  app.add_flag("--resume", options.resume, "Continue from the newest checkpoint of the run folder");
  app.add_option("--out", options.out,
                 "The run folder; by default runs/fashion-mnist, with the next free number if it exists");
  app.add_option("--data", options.data,
                 "Folder of the gzipped IDX files (pip: yoke-fashion-mnist; Debian: dataset-fashion-mnist)")
      ->capture_default_str();
  app.add_option("--precision", options.precision, "auto: bf16 if the hardware supports it")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}))
      ->capture_default_str();
  app.add_flag("--deterministic", options.deterministic,
               "Give the same bits in every run: one thread, deterministic kernels");
  app.add_option("--checkpoint-every", options.checkpoint_every, "Save every N steps too; 0: after each epoch only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  yoke train fashion-mnist                                  on every device, five epochs\n"
      "  yoke train fashion-mnist -n 2 --epochs 1 --seed 7\n"
      "  yoke train fashion-mnist --resume --out runs/fashion-mnist\n"
      "  yoke train fashion-mnist --precision fp32 --deterministic");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  for (const auto* option : app.get_options()) {
    if (option->count() > 0) options.given.insert(option->get_name());
  }
  return options;
}

}  // namespace fashion_mnist
