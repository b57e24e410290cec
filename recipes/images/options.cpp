#include "recipes/images/options.h"

#include <CLI/CLI.hpp>

#include "recipes/images/presets.h"

namespace images {

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a network on pictures of your own, on all ranks of the job that this process belongs to.\n"
      "Usually started by: yoke train images [-n N] [options]",
      "images");
  recipes::add_options(app, options, "images", preset_names());
  options.float_presets = {"smallest-vit"};
  app.add_option("--data", options.data,
                 "Folder with train and val, each a folder of classes, NAME.csv (columns path and label) or NAME*.tar "
                 "(WebDataset); or one such set, of which a tenth is kept for testing. Without it, the recipe draws "
                 "shapes into the run folder and trains on them");
  app.add_option("--init", options.init,
                 "Begin with these weights: safetensors or .pt, with torchvision's or timm's names");
  app.add_option("--head", options.num_classes, "Number of classes; by default that of the data")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.footer(
      "Examples:\n"
      "  yoke train images                                       a small network on drawn shapes\n"
      "  yoke train images --preset resnet50 --data ~/flowers --init resnet50.pth --epochs 10\n"
      "  yoke train images --preset vit-s --data ~/shards --head 1000 -n gpu --parallel zero1\n"
      "  yoke train images --resume --out runs/images");
  recipes::parse(app, argc, argv, options);
  return options;
}

}  // namespace images
