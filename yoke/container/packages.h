// yoke/container/packages.h -- the Python packages of images, and a table that has a column for each image.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/table.h"
#include "yoke/container/engine.h"

namespace yoke::container {

struct Package {
  std::string name, version;
  std::string folder;  ///< Such as /usr/local/lib/python3.12/dist-packages.

  bool operator==(const Package&) const = default;
};

struct ImagePackages {
  std::string image;                 ///< As the user named it.
  std::optional<std::string> error;  ///< Why the image could not be read; the rest is empty then.
  std::vector<std::string> pythons;  ///< Versions in order, such as "3.12"; "" if there is one of unknown version.
  std::vector<Package> packages;     ///< In order of names, without case.

  bool operator==(const ImagePackages&) const = default;
};

/// Parses what the program container-packages has printed. Pure.
ImagePackages parse_packages(const std::string& image, std::string_view text);

/// The name under which Python looks for a package: in lower case, with one dash for each run of '-', '_' and '.'
/// (PEP 503). Pure.
std::string normal_name(std::string_view name);

struct PackageView {
  std::vector<std::string> patterns = {};  ///< Show packages whose name contains one of these, in any case.
  bool shows_all = false;                  ///< Also packages that are the same in all images.
};

struct PackageTable {
  Table table;           ///< "package", and a column for each image; the first row has the versions of Python.
  int64_t num_same = 0;  ///< Packages that have no row, because all images that could be read have the same version.
};

/// One image has a row for each package. Several images have one for each package that differs or matches a pattern.
/// Pure.
PackageTable compare_packages(const std::vector<ImagePackages>& images, const PackageView& view);

struct ReadOptions {
  std::filesystem::path reader;                       ///< The program container-packages of this installation.
  EngineWish engine = {};                             ///< For all images.
  std::function<void(size_t num_read)> on_read = {};  ///< Called by one thread at a time.
};

/// Reads several images at a time. Each is read in a container without a network, by a program of yoke; no program of
/// the image runs. An image that cannot be read has an error.
std::vector<ImagePackages> read_packages(const std::vector<std::string>& images, const ReadOptions& options,
                                         const Environment& environment);

}  // namespace yoke::container
