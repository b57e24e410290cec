// `yoke mount`: mount a folder of another host by sshfs, so that a lost connection is an error and not a hang.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/remote.h"
#include "yoke/cli/options/value.h"
#include "yoke/storage/remote.h"

namespace yoke::cli {
namespace {

struct MountArgs {
  std::string remote;
  std::optional<std::string> point, config;
  std::vector<std::string> options;
  double timeout_s = kStorageTimeout;
  bool json = false;
};

int run_mount(const MountArgs& args, Context& context) {
  const auto remote = storage::parse_remote(args.remote);
  ProgressLine progress(context.environment);
  progress.show_now(fmt::format("asking {}, for at most {}", printable(remote.host),
                                storage::seconds_text(storage::Seconds(args.timeout_s))));
  const auto result = storage::mount_remote({remote, args.point, args.options, args.config}, context.environment,
                                            storage::Deadline(storage::Seconds(args.timeout_s)));
  progress.clear();
  if (args.json) {
    print_json(remote_json(result.mount, result.condition), context);
    return kExitOk;
  }
  context.out << fmt::format("{} is {}mounted on {}\n", printable(storage::source_of(remote)),
                             result.is_new ? "" : "already ", printable(result.mount.mount.point));
  return kExitOk;
}

}  // namespace

void add_mount(CLI::App& cmd, Context& context) {
  auto& args = add_args<MountArgs>(cmd, context, run_mount);
  add_value(cmd, "REMOTE", args.remote, "HOST:[DIR]",
            "The host, as for ssh, and the folder there; without one, the home folder")
      ->required();
  add_value(cmd, "POINT", args.point, "[POINT]",
            "An empty folder, which is made if it is missing. Unless given, ~/mnt/HOST-DIR");
  add_value(cmd, "-F", args.config, "FILE", "A file for ssh instead of ~/.ssh/config");
  add_values(cmd, "-o", args.options, "OPTION[=VALUE]", "More options of sshfs and ssh; they come before those of yoke")
      ->allow_extra_args(false);
  add_storage_timeout(cmd, args.timeout_s);
  cmd.add_flag("--json", args.json, "Print JSON, as an entry of `yoke mounts --json`");
  cmd.footer(
      examples("  yoke mount server:/data/sets            on ~/mnt/server-data-sets\n"
               "  yoke mount ada@server: ~/remote         the home folder there\n"
               "  yoke mount -o ro -o port=2222 server:/data\n"
               "  yoke unmount server                     the end of it\n"
               "\n"
               "ssh must reach the host without a question: with a key or an agent. When the server is lost, programs\n"
               "get an error after at most 15 s, and the mount works again when the server is back.\n"
               "\n"
               "Exit status: 0, also if it is mounted there already; 69 if something is missing on this machine, 75\n"
               "if the server refuses, 124 if it does not answer in time."));
}

}  // namespace yoke::cli
