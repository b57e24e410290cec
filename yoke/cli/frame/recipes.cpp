#include "yoke/cli/frame/recipes.h"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/spelling.h"
#include "yoke/base/sysfs.h"
#include "yoke/cli/frame/missing_program.h"

namespace yoke::cli {
namespace {

Recipe read_recipe(const std::filesystem::path& folder) {
  const auto path = folder / "recipe.toml";
  Recipe recipe{.name = folder.filename().string()};
  recipe.program = folder / recipe.name;
  try {
    const auto table = toml::parse(read_file(path), path.string());
    recipe.summary = table["summary"].value_or(std::string());
    recipe.ranks = table["ranks"].value<int64_t>();
  } catch (const toml::parse_error& error) {
    throw Error(ErrorCode::kDataLoss, "{}:{}: {}", path.string(), error.source().begin.line, error.description());
  }
  return recipe;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(folder)) {
    if (is_there(entry / "recipe.toml")) names.push_back(entry.filename().string());
  }
  return names;
}

}  // namespace

std::string why_no_recipes(const Installation& installation) {
  return fmt::format(
      "there are no recipes in {}; they come with libtorch's half of yoke: `pip install yoke-torch` where yoke came by "
      "pip, otherwise a build with libtorch",
      (installation.libexec / "recipes").string());
}

std::vector<Recipe> list_recipes(const Installation& installation) {
  const auto folder = installation.libexec / "recipes";
  std::vector<Recipe> recipes;
  for (const auto& name : names_in(folder)) recipes.push_back(read_recipe(folder / name));
  return recipes;
}

Recipe find_recipe(const Installation& installation, const std::string& name) {
  const auto folder = installation.libexec / "recipes";
  const auto names = names_in(folder);
  const bool is_program = name.find('/') != name.npos || name.ends_with(".py");
  if (names.empty() && !is_program) {
    throw Error(ErrorCode::kNotFound, "no recipe `{}`: {}", name, why_no_recipes(installation));
  }
  if (std::ranges::find(names, name) == names.end()) {
    throw Error(ErrorCode::kNotFound, "no recipe `{}` in {}{}; see `yoke train --list`", name, folder.string(),
                is_program ? fmt::format("; a program of your own is started by `yoke run {}`", name)
                           : did_you_mean(name, names));
  }
  auto recipe = read_recipe(folder / name);
  if (access(recipe.program.c_str(), X_OK) != 0) {
    throw Error(ErrorCode::kNotFound, "recipe `{}`: {}", name,
                why_missing(installation, recipe.program, "recipe_" + name));
  }
  return recipe;
}

}  // namespace yoke::cli
