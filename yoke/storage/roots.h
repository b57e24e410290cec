// yoke/storage/roots.h -- the folders in which users keep their data: the table [storage] of the site's configuration.
#pragma once

#include <string>
#include <vector>

#include "yoke/site/config.h"

namespace yoke::storage {

struct Root {
  std::string name;
  std::string path;         ///< Absolute; "{user}" stands for the name of the user.
  bool may_create = false;  ///< Users may make their own folder (`yoke storage create`).

  bool operator==(const Root&) const = default;
};

/// [storage.NAME] with path = "/scratch/{user}" and create = true. In order of the names.
/// Errors  kDataLoss, with file and line: a key or value is not known, or the path is not absolute.
std::vector<Root> parse_roots(const site::Section& section);

/// The roots of the site, and those of the user with other names. Pure.
std::vector<Root> merged(std::vector<Root> site, const std::vector<Root>& user);

/// The path of a user. Errors  kInvalidArgument: the name of the user cannot be part of a path.
std::string path_for(const Root& root, const std::string& user);

/// Makes the folder of a user, with mode 0700, and the folders above it from the one with "{user}" on. Symbolic links
/// are refused from there on, because others may write into the folder above. Runs in a child.
/// Returns  whether it was made; false: it is there already and belongs to this user.
/// Errors  kPermissionDenied: this user may not write there; kFailedPrecondition: something else has that name.
bool create_root(const Root& root, const std::string& user);

}  // namespace yoke::storage
