#include "yoke/cli/share/storage_usage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/subordinate_ids.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/remote.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/process/info.h"
#include "yoke/storage/scan.h"

namespace yoke::cli {
namespace {

struct UsageArgs {
  std::string folder = ".";
  int64_t num_largest = 20;
  int num_threads = 0;
  double timeout_s = kStorageTimeout;
  bool by_user = false, json = false;
};

std::string share_text(int64_t bytes, int64_t whole) {
  return whole <= 0 ? "-" : fmt::format("{:.0f} %", 100.0 * static_cast<double>(bytes) / static_cast<double>(whole));
}

using UserUse = std::pair<int64_t, storage::Use>;

/// The users with most bytes first.
std::vector<UserUse> users_in_order(const storage::Usage& usage) {
  std::vector<UserUse> users(usage.users.begin(), usage.users.end());
  std::sort(users.begin(), users.end(),
            [](const UserUse& a, const UserUse& b) { return a.second.bytes > b.second.bytes; });
  return users;
}

std::string subuid_text() { return read_text("/etc/subuid").value_or(""); }

Json usage_json(const storage::Usage& usage, const std::string& root, const storage::Quotas& quotas) {
  const auto folder_json = [](const auto& folder) -> Json {
    const auto& [path, use] = folder;
    return {{"path", path}, {"bytes", use.bytes}, {"files", use.files}};
  };
  const auto user_json = [subuid = subuid_text()](const auto& user) -> Json {
    const auto& [uid, use] = user;
    return {{"user", device::user_name(uid)},
            {"uid", uid},
            {"containers_of", or_null(subordinate_owner(uid, subuid))},
            {"bytes", use.bytes},
            {"files", use.files}};
  };
  const auto unreadable_json = [](const auto& one) -> Json { return {{"path", one.path}, {"reason", one.reason}}; };
  return {{"path", root},
          {"bytes", usage.total.bytes},
          {"files", usage.total.files},
          {"folders", usage.num_folders},
          {"quotas", quotas_json(quotas)},
          {"quotas_unknown", or_null(quotas.unknown)},
          {"largest", json_list(usage.largest, folder_json)},
          {"users", json_list(users_in_order(usage), user_json)},
          {"unreadable", json_list(usage.unreadable, unreadable_json)},
          {"not_crossed", usage.not_crossed}};
}

/// "folder/below" for people, who know the root.
std::string below(const std::string& path, const std::string& root) {
  return path.substr(root == "/" ? 1 : root.size() + 1);
}

std::string usage_text(const storage::Usage& usage, const std::string& root, const storage::Quotas& quotas,
                       const UsageArgs& args) {
  Table table;
  table.columns = {{.title = "SIZE", .align = Align::kRight},
                   {.title = "SHARE", .align = Align::kRight},
                   {.title = "FILES", .align = Align::kRight},
                   {.title = args.by_user ? "USER" : "FOLDER"}};
  const auto add = [&](const storage::Use& use, const std::string& name) {
    table.rows.push_back(
        {format_bytes(use.bytes), share_text(use.bytes, usage.total.bytes), fmt::format("{}", use.files), name});
  };
  if (args.by_user) {
    const auto subuid = subuid_text();
    for (const auto& [uid, use] : users_in_order(usage)) {
      const auto owner = subordinate_owner(uid, subuid);
      add(use, device::user_name(uid) + (owner ? fmt::format(" (containers of {})", printable(*owner)) : ""));
    }
  } else {
    for (const auto& [path, use] : usage.largest) add(use, below(path, root));
  }
  auto text = fmt::format("{} in {} files and {} folders below {}\n", format_bytes(usage.total.bytes),
                          usage.total.files, usage.num_folders, printable(root));
  for (const auto& line : quota_lines(quotas)) text += line + "\n";
  if (!table.rows.empty()) text += to_text(table, kUnlimitedWidth);  // folders differ at their ends
  for (const auto& path : usage.not_crossed)
    text += fmt::format("another file system, not counted: {}\n", printable(path));
  constexpr size_t kMost = 10;
  for (size_t i = 0; i < std::min(kMost, usage.unreadable.size()); ++i) {
    text += fmt::format("not counted: {}: {}\n", printable(usage.unreadable[i].path), usage.unreadable[i].reason);
  }
  if (usage.unreadable.size() > kMost) {
    text += fmt::format("not counted: {} more, which --json names\n", usage.unreadable.size() - kMost);
  }
  const bool is_hidden = std::any_of(usage.unreadable.begin(), usage.unreadable.end(), [](const auto& one) {
    return one.path.find("/containers/storage/") != one.path.npos;
  });
  if (is_hidden && geteuid() != 0) {
    text += "these have images of your containers; `podman unshare yoke storage usage` counts them, too\n";
  }
  return text;
}

/// Ends the command although threads hang in the kernel. Nobody who reads the output waits for them.
void give_up(const std::string& root, const UsageArgs& args, Context& context, const std::function<void(int)>& finish) {
  std::cerr << speaker(context)
            << fmt::format("{}: its file system gave no answer in {}; --timeout waits longer\n", printable(root),
                           storage::seconds_text(storage::Seconds(args.timeout_s)))
            << std::flush;
  context.out.flush();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  finish(exit_status(ErrorCode::kTimeout));
}

int scan_and_print(const std::string& root, const storage::Quotas& quotas, const UsageArgs& args, Context& context,
                   const std::function<void(int)>& finish) {
  storage::Scan scan({root, storage::read_mounts(), args.num_threads, args.num_largest});
  {
    ProgressLine progress(context.environment);
    const auto show = [&](const storage::Use& use) {
      progress.show(fmt::format("{} in {} files so far", format_bytes(use.bytes), use.files));
    };
    if (!scan.wait_while_it_counts(storage::Seconds(args.timeout_s), show)) {
      progress.clear();
      give_up(root, args, context, finish);
    }
  }
  const auto usage = scan.result();
  if (args.json) {
    print_json(usage_json(usage, root, quotas), context);
  } else {
    context.out << usage_text(usage, root, quotas, args);
  }
  return kExitOk;
}

int run_usage(const UsageArgs& args, Context& context) {
  const auto given = std::filesystem::absolute(args.folder).string();
  const auto resolve = [&] {
    std::error_code error;
    const auto path = std::filesystem::canonical(given, error);
    if (error) throw system_error(error.value(), given);
    if (!std::filesystem::is_directory(path)) refuse("{} is not a folder", given);
    return path.string();
  };
  const storage::Deadline deadline{storage::Seconds(args.timeout_s)};
  const auto root = storage::in_child(resolve, deadline, fmt::format("{}:", given));
  storage::Quotas quotas;
  const auto asked = storage::in_children({[&] { return storage::to_bytes(storage::quotas_of(root)); }}, deadline);
  if (asked.front() && asked.front()->text) {
    FieldReader fields(*asked.front()->text);
    quotas = storage::read_quotas(fields);
  }
  return attempt_in_child(context, [&](const std::function<void(int)>& finish) {
    return scan_and_print(root, quotas, args, context, finish);
  });
}

}  // namespace

void add_storage_usage(CLI::App& cmd, Context& context) {
  auto& args = add_args<UsageArgs>(cmd, context, run_usage);
  add_value(cmd, "DIR", args.folder, "[DIR]", "The folder; unless given, the working folder");
  add_number(cmd, "-n,--top", args.num_largest, {"N", 0, 1e6}, "How many of the largest folders to list");
  cmd.add_flag("--by-user", args.by_user, "List the owners of the files instead of folders");
  add_number(cmd, "--threads", args.num_threads, {"N", 0, 256}, "Threads; 0: twice the processors, and at least 4");
  add_number(cmd, "--timeout", args.timeout_s, {"SECONDS", 0.1, 3600},
             "The command ends if the file system gives no answer for so long");
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.footer(
      examples("  yoke storage usage                     what fills the working folder\n"
               "  yoke storage usage /data --by-user     whose it is\n"
               "  yoke storage usage -n 5 --json | jq -r '.largest[].path'\n"
               "\n"
               "Sizes are those on the disk, as of `du -x`. A file with several names is counted once, links are not\n"
               "followed, and other file systems are not crossed. A folder is left out of the list if one folder in\n"
               "it has 80 % of its bytes."));
}

}  // namespace yoke::cli
