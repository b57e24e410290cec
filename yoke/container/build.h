// yoke/container/build.h -- names of images that users make, and the command line that builds one. Pure.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/container/config.h"
#include "yoke/container/engine.h"

namespace yoke::container {

/// The name that an image gets: `chosen` itself if it follows the site's rule, or a short name completed by the rule,
/// such as ada/train:2 for train:2.
/// Errors  kInvalidArgument: the name breaks the rule, which the message shows, or engines do not allow it.
std::string built_image_name(const SiteRules& rules, std::string_view user, const std::string& chosen);

/// A name for the image that is built from this folder: "train" for /home/ada/Train.
std::string image_name_of_folder(const std::filesystem::path& folder);

/// Whether the command line must name the recipe: docker finds a Dockerfile by itself, but no Containerfile.
bool needs_name(EngineKind engine, bool has_dockerfile, bool has_containerfile);

struct BuildRequest {
  std::filesystem::path folder = ".";                ///< Paths in the recipe begin here, other paths where this runs.
  std::string name;                                  ///< For Apptainer a file, such as train.sif.
  std::optional<std::filesystem::path> recipe = {};  ///< A Containerfile, or a definition file of Apptainer.
  std::vector<std::string> arguments = {};           ///< NAME=VALUE, for ARG in the recipe.
};

/// Returns argv; the first word may be a program of PATH. Errors  kInvalidArgument: Apptainer needs a recipe.
std::vector<std::string> plan_build(const Engine& engine, const BuildRequest& request);

}  // namespace yoke::container
