// yoke/container/image.h -- names of images: short names of vendors' registries, and what an image starts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/container/engine.h"

namespace yoke::container {

/// Where the tag or the digest begins, with its ':' or '@'; npos if there is none. A registry's port is not a tag.
size_t tag_of(std::string_view name);

/// Replaces a short name, with or without a tag, by the full one; returns other names unchanged.
/// Errors  kInvalidArgument: the image needs a tag, or a name that begins with "ngc/" is not in the table.
std::string full_image_name(const std::string& name);

/// Whether this is the path of a file or folder for Apptainer, whether it exists or not. A name that ends as files of
/// images do is one, since a registry could have somebody else's image of that name. Pure.
bool names_file(std::string_view image);

/// The form in which `engine` takes the name: Apptainer gets docker:// before the name of a registry.
/// Errors  kNotFound: there is no such file; kInvalidArgument: the engine takes no files.
std::string image_for(EngineKind engine, const std::string& name);

/// What an image starts, and its variables as NAME=VALUE.
struct ImageFacts {
  std::vector<std::string> entrypoint, command, variables = {};
};

/// Parses `podman image inspect` and `docker image inspect`. Errors  kDataLoss: it is something else.
ImageFacts parse_image_facts(const std::string& json);

/// Whether an engine's message says that there is no such image, and not that something else has failed.
bool says_no_image(std::string_view error);

/// The line of an engine's error text that says why: the last one that is not advice, such as docker's "Run 'docker run
/// --help' for more information".
std::string reason_in(std::string_view error);

/// Returns nullopt if the image is not on this machine. Apptainer's images have no facts.
/// Errors  as errno says; kUnavailable: the engine does not tell.
std::optional<ImageFacts> find_image(const Engine& engine, const std::string& image, const Environment& environment);

/// Downloads the image and shows the progress on standard error. Errors  kUnavailable: that failed.
void pull_image(const Engine& engine, const std::string& image, const Environment& environment);

/// What the container starts: the image's entry point and `command`, or else the image's command.
/// Errors  kInvalidArgument: there is no command.
std::vector<std::string> program_of(const Engine& engine, const ImageFacts& facts,
                                    const std::vector<std::string>& command);

}  // namespace yoke::container
