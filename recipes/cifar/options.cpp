#include "recipes/cifar/options.h"

#include <CLI/CLI.hpp>

#include "recipes/cifar/presets.h"

namespace cifar {

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a ResNet on CIFAR-10, on all ranks of the job that this process belongs to.\n"
      "Usually started by: yoke train cifar [-n N] [options]",
      "cifar");
  recipes::add_options(app, options, "cifar", preset_names());
  app.add_option(
      "--data", options.data,
      "Folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin, CIFAR-10's binary version; without "
      "it, the recipe draws shapes into the run folder and trains on them");
  app.footer(
      "Examples:\n"
      "  yoke train cifar                                        a small network on drawn shapes\n"
      "  yoke train cifar --preset resnet18 --data ~/cifar-10-batches-bin\n"
      "  yoke train cifar -n 2 --parallel fsdp\n"
      "  yoke train cifar --resume --out runs/cifar -n 1");
  recipes::parse(app, argc, argv, options);
  return options;
}

}  // namespace cifar
