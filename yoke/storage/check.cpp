#include "yoke/storage/check.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/storage/roots.h"

namespace yoke::storage {
namespace {

using device::Finding;
using device::Status;

Finding finding(Status status, std::string found, std::string advice = "") {
  return {"storage", status, {}, std::move(found), std::move(advice)};
}

Finding try_root(const Root& root, const std::vector<site::Account>& accounts) {
  if (geteuid() != 0) {
    return finding(Status::kSkip, fmt::format("only root can try {} as two users", root.name), "use sudo");
  }
  bool is_tried = false;
  for (const auto& account : accounts) {
    if (!site::has_user(account)) continue;  // a number has no folder
    is_tried = true;
    const auto found = site::as_user(account, [&]() -> std::string {
      alarm(10);  // a server that does not answer
      const std::filesystem::path path = path_for(root, account.name);
      struct stat status {};
      if (stat(path.c_str(), &status) == 0) {
        return S_ISDIR(status.st_mode) && access(path.c_str(), R_OK | W_OK | X_OK) == 0 ? "+" : "it is not usable";
      }
      if (!root.may_create) return "it does not exist, and `create` is not set";
      const auto above = path.parent_path();
      return access(above.c_str(), W_OK | X_OK) == 0 ? "+" : fmt::format("{} may not be written", above.string());
    });
    if (found == "+") continue;
    return finding(Status::kWarn,
                   fmt::format("{} cannot use {}, the root {}: {}", account.name, path_for(root, account.name),
                               root.name, found.empty() ? "it does not answer" : found),
                   "make the folder, or mend its path and mode; docs/storage.md has the table");
  }
  if (!is_tried) {
    return finding(Status::kSkip, fmt::format("{} is not tried, because the users have no names", root.name),
                   "name two users by --user");
  }
  return finding(Status::kOk, fmt::format("users can have folders in {} ({})", root.name, root.path));
}

}  // namespace

std::vector<Finding> check_roots(const std::vector<site::Account>& accounts, const Environment& environment) {
  std::vector<Root> roots;
  try {
    roots = parse_roots(site::read_config(environment).site.section("storage"));
  } catch (const Error& error) {
    return {finding(Status::kFail, error.what(), "until that is mended, `yoke storage` does not work")};
  }
  std::vector<Finding> findings;
  for (const auto& root : roots) findings.push_back(try_root(root, accounts));
  return findings;
}

}  // namespace yoke::storage
