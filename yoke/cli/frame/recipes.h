// yoke/cli/frame/recipes.h -- the trainings that are installed, as their recipe.toml describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"

namespace yoke::cli {

struct Recipe {
  std::string name;              ///< The name of its folder and of the program in it.
  std::string summary;           ///< One line.
  std::optional<int64_t> ranks;  ///< The number of ranks without -n; unset: one rank per device.
  std::filesystem::path program;
};

/// Lists recipes in order of their names. Neither loads nor runs a recipe.
/// Errors  kDataLoss: a recipe.toml does not parse (names file and line).
std::vector<Recipe> list_recipes(const Installation& installation);

/// Errors  kNotFound: there is no such recipe (names the nearest); kDataLoss: its recipe.toml does not parse.
Recipe find_recipe(const Installation& installation, const std::string& name);

}  // namespace yoke::cli
