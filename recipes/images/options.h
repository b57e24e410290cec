// recipes/images/options.h -- the command line of the recipe.
#pragma once

#include <cstdint>
#include <string>

#include "recipes/common/options.h"

namespace images {

struct Options : recipes::Options {
  std::string data;         ///< See open_pictures; empty: drawn shapes.
  std::string init;         ///< A file of weights to begin with; empty: random ones.
  int64_t num_classes = 0;  ///< 0: as many as the data have.
};

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace images
