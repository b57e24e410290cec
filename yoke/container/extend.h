// yoke/container/extend.h -- Python packages on top of an image: a virtual environment, made in the image. Pure.
//
// The environment sees the packages of the image and has only what is missing. It is made in a folder of the host that
// is mounted into a container. Apptainer gets it as a squashfs file beside the image. podman and docker get a derived
// image, because their images have layers: the derived image shares all but the last one, and each program that takes
// an image's name can use it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/container/helper.h"
#include "yoke/container/image.h"

namespace yoke::container {

/// Where an extension for Apptainer is mounted. The files in it have this path in them.
inline constexpr const char* kExtensionInside = "/opt/yoke/extension";

struct ExtendRequest {
  std::string image;                  ///< As the engine wants it.
  std::vector<std::string> packages;  ///< As for pip, also its options.
  std::optional<std::filesystem::path> requirements = {};
  std::optional<std::filesystem::path> wheels = {};  ///< Take packages from this folder, and use no network.
  std::optional<std::string> network = {};
  std::filesystem::path folder;     ///< A folder of the host that gets the environment.
  std::filesystem::path temporary;  ///< The container's /tmp.
  std::string inside;               ///< The path of the environment in the container.
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The container that makes the environment. `environment` has the variables of proxies and indices.
Client plan_extension(const Engine& engine, const ExtendRequest& request, const Environment& environment);

/// The Containerfile of the derived image; the environment is in the folder "venv" beside it.
std::string containerfile_of(const std::string& image, const ImageFacts& facts, const std::string& inside);

}  // namespace yoke::container
