// recipes/fashion_mnist/options.h -- the options of the command line.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace fashion_mnist {

struct Options {
  int64_t num_epochs = 5;
  /// Of all ranks together, so that the accuracy does not depend on the number of ranks.
  int64_t batch_size = 256;
  uint64_t seed = 0;
  bool resume = false;
  std::string out;
  std::string data;
  std::string precision = "auto";
  bool deterministic = false;
  int64_t checkpoint_every = 0;  ///< In steps; 0: at the end of each epoch only.
  std::set<std::string> given;   ///< Names of the options that were on the command line.
};

/// Ends the process after --help, and when an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace fashion_mnist
