// `yoke unmount`: end the mount of a remote folder, also if its server does not answer.
#include <fmt/format.h>
#include <unistd.h>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/remote.h"
#include "yoke/cli/options/value.h"
#include "yoke/storage/remote.h"

namespace yoke::cli {
namespace {

struct UnmountArgs {
  std::string what;
  double timeout_s = kStorageTimeout;
  bool force = false;
};

/// Returns the mount on a folder, or all of this user from a host, the last one first.
std::vector<storage::RemoteMount> mounts_named(const std::string& word, const storage::Deadline& deadline) {
  const auto own = int64_t{geteuid()};
  const auto all = storage::find_remote_mounts(std::nullopt);
  std::vector<storage::RemoteMount> found;
  for (const auto& mount : all) {
    if (mount.uid == own && storage::names_host(word, mount.remote.host)) found.insert(found.begin(), mount);
  }
  if (!found.empty()) return found;
  const auto mount = storage::find_by_point(all, word, deadline);
  if (!mount) {
    throw Error(ErrorCode::kNotFound,
                "no remote folder is mounted on {}, or from a host of that name; see `yoke mounts`", word);
  }
  if (mount->uid != own && own != 0) {
    throw Error(ErrorCode::kPermissionDenied, "{} was mounted by another user, who alone may end it",
                mount->mount.point);
  }
  return {*mount};
}

int run_unmount(const UnmountArgs& args, Context& context) {
  const storage::Deadline deadline{storage::Seconds(args.timeout_s)};
  for (const auto& mount : mounts_named(args.what, deadline)) {
    const auto result = storage::unmount_remote(mount, args.force, deadline);
    const auto point = printable(mount.mount.point);
    if (result.is_detached) {
      context.out << fmt::format("detached {}; programs that have files open there keep them until they end\n", point);
    } else if (result.state == storage::MountState::kAlive) {
      context.out << fmt::format("unmounted {}\n", point);
    } else {
      context.out << fmt::format("unmounted {}, which was {}\n", point, storage::name(result.state));
    }
  }
  return kExitOk;
}

}  // namespace

void add_unmount(CLI::App& cmd, Context& context) {
  auto& args = add_args<UnmountArgs>(cmd, context, run_unmount);
  add_value(cmd, "WHAT", args.what, "POINT|HOST",
            "The folder that is mounted on, or a host for all of your mounts from there")
      ->required();
  cmd.add_flag("-f,--force", args.force, "Also if processes use it; those of a dead mount lose what is not written");
  add_storage_timeout(cmd, args.timeout_s);
  cmd.footer(
      examples("  yoke unmount ~/mnt/server-data\n"
               "  yoke unmount server            all of your mounts from there\n"
               "  yoke unmount -f server         also if the server is gone and programs still wait for it\n"
               "\n"
               "Exit status: 0; 66 if there is no such mount, 69 if processes use it, 77 if it belongs to somebody\n"
               "else, 124 if it could not be ended in time."));
}

}  // namespace yoke::cli
