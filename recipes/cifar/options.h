// recipes/cifar/options.h -- the command line of the recipe.
#pragma once

#include <string>

#include "recipes/common/options.h"

namespace cifar {

struct Options : recipes::Options {
  std::string data;  ///< A folder with CIFAR-10's binaries; empty: drawn shapes.
};

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace cifar
