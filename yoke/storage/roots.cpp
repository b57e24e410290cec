#include "yoke/storage/roots.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::storage {
namespace {

constexpr std::string_view kUser = "{user}";

std::string with_user(std::string text, const std::string& user) {
  for (size_t at = 0; (at = text.find(kUser, at)) != text.npos; at += user.size()) text.replace(at, kUser.size(), user);
  return text;
}

}  // namespace

std::vector<Root> parse_roots(const site::Section& section) {
  std::vector<Root> roots;
  for (const auto& name : section.keys()) {
    const auto table = section.section(name);
    table.check_keys({"path", "create"});
    const auto path = table.text("path");
    if (!path) section.refuse(name, "[storage." + name + "] needs a path, such as \"/scratch/{user}\"");
    const std::filesystem::path as_path = *path;
    if (!as_path.is_absolute() || as_path != as_path.lexically_normal() || path->ends_with('/')) {
      table.refuse("path", "path takes an absolute path without \"..\" and a slash at its end");
    }
    site::check_fields(table, "path", {kUser});
    const bool may_create = table.flag("create").value_or(false);
    if (may_create && path->find(kUser) == path->npos) {
      table.refuse("create", "create = true needs {user} in the path, because each user makes a folder of his own");
    }
    roots.push_back({name, *path, may_create});
  }
  return roots;
}

std::vector<Root> merged(std::vector<Root> site, const std::vector<Root>& user) {
  for (const auto& root : user) {
    const bool is_known = std::ranges::any_of(site, [&](const Root& other) { return other.name == root.name; });
    if (!is_known) site.push_back(root);
  }
  return site;
}

std::string path_for(const Root& root, const std::string& user) {
  if (root.path.find(kUser) == root.path.npos) return root.path;
  if (user.empty() || user.starts_with('.') || user.find('/') != user.npos) {
    throw Error(ErrorCode::kInvalidArgument, "the user name {} cannot be part of the path {}", user, root.path);
  }
  return with_user(root.path, user);
}

bool create_root(const Root& root, const std::string& user) {
  const auto path = path_for(root, user);
  // Folders above the one with {user} are the administrator's, who may use links there.
  const auto above = root.path.substr(0, root.path.rfind('/', root.path.find(kUser)));
  UniqueFd folder(open(above.empty() ? "/" : above.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw system_error(errno, above);
  bool is_new = false;
  std::string shown = above;
  for (const auto part : split(std::string_view(path).substr(above.size() + 1), '/')) {
    const std::string name(part);
    shown += "/" + name;
    is_new = mkdirat(folder.value(), name.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST) {
      const int error_number = errno;
      throw Error(code_of_errno(error_number),
                  "{} cannot be made: {}; an administrator can make it for you, or let all "
                  "users make folders in {} (`chmod 1777`)",
                  shown, system_error(error_number, "mkdir").what(), above);
    }
    UniqueFd next(openat(folder.value(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!next && errno != EACCES) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "{} is there, and is not a folder but a link or a file; tell an "
                  "administrator if it is not yours",
                  shown);
    }
    if (next && fstat(next.value(), &status) != 0) throw system_error(errno, shown);
    if (!next || status.st_uid != geteuid()) {
      throw Error(ErrorCode::kFailedPrecondition, "{} belongs to somebody else; tell an administrator", shown);
    }
    folder = std::move(next);
  }
  return is_new;
}

}  // namespace yoke::storage
