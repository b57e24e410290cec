// `yoke mounts`: list the remote folders that are mounted by sshfs, and whether their servers answer.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "yoke/base/format.h"
#include "yoke/base/table.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/remote.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/info.h"
#include "yoke/storage/remote.h"

namespace yoke::cli {
namespace {

struct MountsArgs {
  double timeout_s = kStorageTimeout;
  bool json = false;
};

Table mounts_table(const std::vector<storage::RemoteMount>& mounts, const std::vector<storage::Condition>& conditions,
                   bool shows_users) {
  Table table;
  table.columns = {{.title = "HOST", .shrinks_to = 8},
                   {.title = "DIR", .shrinks_to = 8},
                   {.title = "POINT", .shrinks_to = 12, .shrinks_late = true},
                   {.title = "STATE"},
                   {.title = "LATENCY", .align = Align::kRight},
                   {.title = "FOR", .align = Align::kRight, .drop_order = 1}};
  if (shows_users) table.columns.push_back({.title = "USER"});
  const auto now = std::chrono::system_clock::now();
  for (size_t i = 0; i < mounts.size(); ++i) {
    const auto& [mount, remote, uid, process] = mounts[i];
    const auto& condition = conditions[i];
    std::vector<std::string> row = {
        remote.host,
        remote.folder.empty() ? "~" : remote.folder,
        mount.point,
        std::string(storage::name(condition.state)),
        condition.latency ? fmt::format("{:.1f} ms", condition.latency->count() * 1e3) : "-",
        process && process->since ? format_duration(now - *process->since) : "-"};
    if (shows_users) row.push_back(device::user_name(uid));
    table.rows.push_back(std::move(row));
  }
  return table;
}

int run_mounts(const MountsArgs& args, Context& context) {
  const bool is_root = geteuid() == 0;
  const auto mounts = storage::find_remote_mounts(is_root ? std::nullopt : std::optional<int64_t>(int64_t{geteuid()}));
  const auto conditions = storage::check(mounts, storage::Deadline(storage::Seconds(args.timeout_s)));
  if (args.json) {
    auto entries = nlohmann::ordered_json::array();
    for (size_t i = 0; i < mounts.size(); ++i) entries.push_back(remote_json(mounts[i], conditions[i]));
    print_json(nlohmann::ordered_json{{"mounts", std::move(entries)}}, context);
    return kExitOk;
  }
  if (mounts.empty()) {
    context.out << "no remote folder is mounted by sshfs\n";
    return kExitOk;
  }
  context.out << to_text(mounts_table(mounts, conditions, is_root), output_width(context));
  for (size_t i = 0; i < mounts.size(); ++i) {
    if (conditions[i].reason.empty()) continue;
    context.out << fmt::format("{}: {}\n", printable(mounts[i].mount.point), printable(conditions[i].reason));
  }
  return kExitOk;
}

}  // namespace

void add_mounts(CLI::App& cmd, Context& context) {
  auto& args = add_args<MountsArgs>(cmd, context, run_mounts);
  add_storage_timeout(cmd, args.timeout_s);
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.footer(
      examples("  yoke mounts                    your remote folders, and whether their servers answer; root sees all\n"
               "  yoke mounts --timeout 1        what does not answer within a second is stalled\n"
               "  yoke mounts --json | jq -r '.mounts[] | select(.state != \"alive\") | .point'\n"
               "\n"
               "All servers are asked at the same time. Mounts that were made by sshfs without yoke are listed, too."));
}

}  // namespace yoke::cli
