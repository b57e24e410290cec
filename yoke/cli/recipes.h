// yoke/cli/recipes.h -- the trainings that are installed, as their recipe.toml describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"

namespace yoke::cli {

struct Recipe {
  std::string name;              ///< Of its folder, and of the program in it.
  std::string summary;           ///< One line.
  std::optional<int64_t> ranks;  ///< What it asks for without -n; unset: all devices.
  std::filesystem::path program;
};

/// In order of names. Loads and runs nothing. Errors  kDataLoss: a recipe.toml that does not parse, with file and line.
std::vector<Recipe> list_recipes(const Installation& installation);

/// Errors  kNotFound, with the nearest name. kDataLoss as above, for this recipe only.
Recipe find_recipe(const Installation& installation, const std::string& name);

}  // namespace yoke::cli
