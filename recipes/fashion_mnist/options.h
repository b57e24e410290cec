// recipes/fashion_mnist/options.h -- the command line of the recipe.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace fashion_mnist {

struct Options {
  int64_t num_epochs = 5;
  /// The number of samples of all ranks together, so that the accuracy does not depend on the number of ranks.
  int64_t batch_size = 256;
  uint64_t seed = 0;
  bool resume = false;
  std::string out;
  std::string data;
  std::string precision = "auto";
  bool deterministic = false;
  int64_t checkpoint_every = 0;  ///< In steps; 0: only at the end of each epoch.
  std::set<std::string> given;   ///< Names of the options that were on the command line.
};

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace fashion_mnist
