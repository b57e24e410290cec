#include "yoke/cli/options/container_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/storage/in_children.h"

namespace yoke::cli {
namespace {

using container::EngineKind;

constexpr storage::Seconds kPatience(5);

/// Errors  as errno says; kTimeout: the file system does not answer.
void require_source(const std::string& text, const std::string& source) {
  const auto look = [&] {
    struct stat info = {};
    return std::to_string(stat(source.c_str(), &info) == 0 ? 0 : errno);
  };
  const auto answer = storage::in_child(look, storage::Deadline(kPatience), fmt::format("-v {}: looking at it", text));
  const auto error = static_cast<int>(parse_int(answer).value_or(EIO));
  if (error == 0) return;
  if (error == ENOENT) {
    throw Error(ErrorCode::kNotFound, "-v {}: {} does not exist", printable(text), printable(source));
  }
  const bool is_lost = error == ENOTCONN || error == EIO || error == ESTALE || error == EHOSTDOWN;
  throw Error(
      code_of_errno(error), "-v {}: {} cannot be used: {}{}", printable(text), printable(source),
      std::generic_category().message(error),
      is_lost ? "; its server is lost: `yoke mounts` shows what is mounted, and `yoke unmount` gives it up" : "");
}

std::vector<std::string> folders_of(const container::Request& request) {
  std::vector<std::string> folders = {request.folder};
  for (const auto& mount : request.mounts) {
    if (mount.source.starts_with('/')) folders.push_back(mount.source);
  }
  return folders;
}

}  // namespace

std::vector<container::Mount> mounts_of_user(const ContainerOptions& options, EngineKind engine,
                                             const Context& context) {
  std::vector<container::Mount> mounts = options.own_mounts;
  const auto folder = std::filesystem::current_path();
  for (const auto& text : options.volumes) {
    auto mount = container::parse_mount(text, folder);
    std::error_code error;
    if (!mount.source.starts_with('/')) {
      const bool is_there = std::filesystem::exists(folder / mount.source, error);
      if (engine == EngineKind::kApptainer) {
        mount.source = folder / mount.source;  // Apptainer has no volumes
      } else if (is_there) {
        std::cerr << speaker(context) << "note: -v " << printable(text) << " mounts the engine's volume "
                  << printable(mount.source) << ", and not the file or folder of this name; write ./" << printable(text)
                  << " for that\n";
      }
    }
    if (mount.source.starts_with('/')) require_source(text, mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::string note_on_groups(const container::Engine& engine, const container::Request& request) {
  const bool drops_groups = engine.kind == EngineKind::kPodman && engine.is_rootless && !engine.can_keep_groups;
  if (!drops_groups) return "";
  std::vector<std::string> folders;
  const auto& user = request.user;
  for (const auto& folder : folders_of(request)) {
    struct stat info = {};
    if (stat(folder.c_str(), &info) != 0 || info.st_uid == user.uid || info.st_gid == user.gid) continue;
    const bool is_member = std::ranges::find(user.groups, info.st_gid) != user.groups.end();
    constexpr mode_t kAll = 07;
    const auto by_group = (info.st_mode >> 3) & kAll, by_others = info.st_mode & kAll;
    if (is_member && (by_group & ~by_others) != 0) folders.push_back(printable(folder));
  }
  if (folders.empty()) return "";
  return fmt::format(
      "your groups are lost in this container, and you use {} by one of them: podman keeps them only with the runtime "
      "crun; install the package crun",
      fmt::join(folders, " and "));
}

std::vector<std::string> notes_on_private_mounts(const container::Engine& engine, const container::Request& request,
                                                 const std::vector<storage::Mount>& mounts) {
  std::vector<std::string> notes;
  if (engine.kind == EngineKind::kApptainer) return notes;
  for (const auto& folder : folders_of(request)) {
    const auto* mount = storage::mount_of(mounts, folder);
    if (mount == nullptr || !mount->type.starts_with("fuse.")) continue;
    const auto owner = storage::option_value(mount->super_options, "user_id");
    const auto options = split(mount->super_options, ',');
    const bool is_for_all = std::ranges::find(options, "allow_other") != options.end();
    const bool is_roots = owner == "0" && !engine.is_rootless;
    if (is_for_all || is_roots) continue;
    notes.push_back(fmt::format(
        "{} is on {}, a mount of {} that only its user may see, and {} mounts it as another one; `yoke mount -o "
        "allow_other` makes a mount for all users",
        printable(folder), printable(mount->point), printable(mount->type.substr(5)), name(engine.kind)));
  }
  return notes;
}

}  // namespace yoke::cli
