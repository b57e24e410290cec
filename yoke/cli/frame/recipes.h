// yoke/cli/frame/recipes.h -- lists the installed recipes, which are complete trainings described by a recipe.toml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"

namespace yoke::cli {

struct Recipe {
  std::string name;              ///< The name of the recipe's folder, and of the program in that folder.
  std::string summary;           ///< One line.
  std::optional<int64_t> ranks;  ///< The number of ranks if -n is not given; nullopt: one rank per device.
  std::filesystem::path program;
};

/// Lists the recipes in order of their names. Reads the recipe.toml files and runs no recipe.
/// Errors  kDataLoss: a recipe.toml does not parse (names file and line).
std::vector<Recipe> list_recipes(const Installation& installation);

/// Returns a clause that says what to do about an installation without any recipe.
std::string why_no_recipes(const Installation& installation);

/// Errors  kNotFound: no recipe has this name (names the nearest); kDataLoss: its recipe.toml does not parse.
Recipe find_recipe(const Installation& installation, const std::string& name);

}  // namespace yoke::cli
