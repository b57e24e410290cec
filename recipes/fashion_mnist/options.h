// recipes/fashion_mnist/options.h -- the command line of the recipe, and its preset.
#pragma once

#include <cstdint>
#include <string>

#include "recipes/common/options.h"

namespace fashion_mnist {

struct Options : recipes::Options {
  std::string data;  ///< Folder of the IDX files.
};

/// How the network is trained.
struct Preset {
  int64_t num_epochs = 5;
  /// The number of samples of all ranks together, so that the accuracy does not depend on the number of ranks.
  int64_t batch_size = 256;
  double max_lr = 0.2;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0.1;
  double warm_up = 0.2;  ///< The share of all steps.
};

Preset smallest();  ///< A search found these values; see README.md.

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace fashion_mnist
