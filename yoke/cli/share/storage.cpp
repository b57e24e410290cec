// `yoke storage`: where users keep their data, how fast and how full that is, and what fills it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/remote.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/storage_usage.h"
#include "yoke/device/process/info.h"
#include "yoke/storage/survey.h"

namespace yoke::cli {
namespace {

struct StorageArgs {
  double timeout_s = kStorageTimeout;
  bool json = false, measures = false;
};

struct StorageCreateArgs {
  std::string root;
  double timeout_s = kStorageTimeout;
};

std::vector<storage::Root> configured_roots(const Context& context) {
  const auto config = site::read_config(context.environment);
  return storage::merged(storage::parse_roots(config.site.section("storage")),
                         storage::parse_roots(config.user.section("storage")));
}

/// The configured roots, and those that every machine has.
std::vector<storage::Root> all_roots(const Context& context) {
  std::vector<storage::Root> usual;
  const auto home = context.environment.value_or("HOME", ""), tmp = context.environment.value_or("TMPDIR", "/tmp");
  if (home.starts_with('/')) usual.push_back({"home", home});
  if (tmp.starts_with('/')) usual.push_back({"tmp", tmp});
  return storage::merged(configured_roots(context), usual);
}

/// The name that the kernel's user has, whatever $USER says.
std::string own_name() { return device::user_name(int64_t{geteuid()}); }

Json root_json(const storage::RootReport& report) {
  const auto& speed = report.speed;
  return {{"name", report.root.name},
          {"path", report.path},
          {"state", storage::name(report.condition)},
          {"reason", or_null(report.reason)},
          {"may_create", report.root.may_create},
          {"free_bytes", or_null(report.free_bytes)},
          {"total_bytes", or_null(report.total_bytes)},
          {"quotas", quotas_json(report.quotas)},
          {"quotas_unknown", or_null(report.quotas.unknown)},
          {"file_system", report.mount ? Json(report.mount->type) : Json()},
          {"disk", storage::name(report.disk.kind)},
          {"device", report.disk.device},
          {"is_fastest", report.is_fastest},
          {"speed", speed ? Json{{"write_bytes_per_s", speed->write_bytes_per_s},
                                 {"read_bytes_per_s", speed->read_bytes_per_s},
                                 {"is_direct", speed->is_direct}}
                          : Json()}};
}

Table storage_table(const std::vector<storage::RootReport>& reports, bool shows_speeds) {
  Table table;
  table.columns = {{.title = "ROOT"},
                   {.title = "PATH", .shrinks_to = 12, .shrinks_late = true},
                   {.title = "STATE"},
                   {.title = "DISK", .shrinks_to = 8},
                   {.title = "FREE", .align = Align::kRight},
                   {.title = "SIZE", .align = Align::kRight, .drop_order = 1}};
  if (shows_speeds) {
    table.columns.push_back({.title = "WRITE", .align = Align::kRight});
    table.columns.push_back({.title = "READ", .align = Align::kRight});
  }
  table.columns.push_back({.title = ""});
  const auto size = [](const std::optional<int64_t>& bytes) { return bytes ? format_bytes(*bytes) : "-"; };
  const auto rate = [](double bytes_per_s) { return format_bytes(static_cast<int64_t>(bytes_per_s)) + "/s"; };
  for (const auto& report : reports) {
    std::vector<std::string> row = {report.root.name,
                                    report.path,
                                    std::string(storage::name(report.condition)),
                                    fmt::format("{} ({})", storage::name(report.disk.kind), report.disk.device),
                                    size(report.usable_bytes()),
                                    size(report.total_bytes)};
    if (shows_speeds) {
      row.push_back(report.speed ? rate(report.speed->write_bytes_per_s) : "-");
      row.push_back(report.speed ? rate(report.speed->read_bytes_per_s) : "-");
    }
    row.push_back(report.is_fastest ? "fastest" : "");
    table.rows.push_back(std::move(row));
  }
  return table;
}

int run_storage(const StorageArgs& args, Context& context) {
  auto reports = storage::survey(all_roots(context), own_name(), storage::Deadline(storage::Seconds(args.timeout_s)));
  if (args.measures) {
    ProgressLine progress(context.environment);
    storage::measure(reports, storage::Seconds(args.timeout_s), [&](const storage::RootReport& report) {
      progress.show_now(fmt::format("measuring {} in {}", report.root.name, printable(report.path)));
    });
  }
  storage::mark_fastest(reports);
  if (args.json) {
    print_json(Json{{"roots", json_list(reports, root_json)}}, context);
    return kExitOk;
  }
  context.out << to_text(storage_table(reports, args.measures), output_width(context));
  for (const auto& report : reports) {
    const auto& name = report.root.name;
    if (!report.reason.empty()) context.out << fmt::format("{}: {}\n", name, printable(report.reason));
    if (report.condition == storage::RootCondition::kAbsent && report.root.may_create) {
      context.out << fmt::format("{}: `yoke storage create {}` makes it\n", name, name);
    }
    for (const auto& line : quota_lines(report.quotas)) context.out << fmt::format("{}: {}\n", name, line);
    if (!args.measures) continue;
    if (!report.speed) context.out << fmt::format("{}: not measured: {}\n", name, printable(report.speed_reason));
    if (report.speed && !report.speed->is_direct) {
      context.out << fmt::format("{}: this file system has no direct access, so memory may have helped\n", name);
    }
  }
  return kExitOk;
}

int run_storage_create(const StorageCreateArgs& args, Context& context) {
  std::vector<storage::Root> wanted;
  const auto roots = configured_roots(context);
  for (const auto& root : roots) {
    if (args.root.empty() ? root.may_create : root.name == args.root) wanted.push_back(root);
  }
  if (wanted.empty()) {
    std::vector<std::string> names;
    for (const auto& root : roots) names.push_back(root.name);
    throw Error(ErrorCode::kNotFound,
                "the site has no {}; its roots are: {}; an administrator adds some in [storage] "
                "of /etc/yoke/config.toml",
                args.root.empty() ? "root that users may make" : "root " + args.root,
                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  const storage::Deadline deadline{storage::Seconds(args.timeout_s)};
  for (const auto& root : wanted) {
    if (!root.may_create) {
      throw Error(ErrorCode::kPermissionDenied,
                  "the site does not let users make {} (create = true in [storage.{}]); ask "
                  "an administrator for {}",
                  root.name, root.name, storage::path_for(root, own_name()));
    }
    const auto path = storage::path_for(root, own_name());
    const auto made = storage::in_child(
        [&] { return std::string(storage::create_root(root, own_name()) ? "made" : "is there already:"); }, deadline,
        fmt::format("making {}:", path));
    context.out << fmt::format("{}: {} {}\n", root.name, made, printable(path));
  }
  return kExitOk;
}

}  // namespace

void add_storage(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<StorageArgs>();  // CLI11 keeps references to it; the callback owns it
  add_storage_timeout(cmd, args->timeout_s);
  cmd.add_flag("--measure", args->measures, "Write and read a file of up to 512 MiB in each folder, for a second each");
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.footer(
      examples("  yoke storage                   your folders, what you may still write there, and which disk is fast\n"
               "  yoke storage --measure         the same with measured speeds; --timeout is then for each\n"
               "  yoke storage create scratch    make your folder there\n"
               "  yoke storage usage             what fills the working folder\n"
               "\n"
               "The roots are those of [storage] in /etc/yoke/config.toml and in ~/.config/yoke/config.toml, and your\n"
               "home and temporary folders."));
  cmd.require_subcommand(0, 1);
  cmd.callback([args, &cmd, &context] {
    if (cmd.get_subcommands().empty()) context.exit_code = run_storage(*args, context);
  });

  auto& create = *cmd.add_subcommand("create", "Make your folder in a root of the site");
  auto& create_args = add_args<StorageCreateArgs>(create, context, run_storage_create);
  add_value(create, "ROOT", create_args.root, "[ROOT]", "The name of the root; unless given, all that users may make");
  add_storage_timeout(create, create_args.timeout_s);
  create.footer(
      examples("  yoke storage create scratch\n"
               "  yoke storage create            in all roots that the site lets users make\n"
               "\n"
               "The folder gets mode 0700.\n"
               "\n"
               "Exit status: 0, also if it is there already; 66 if there is no such root,\n"
               "77 if you may not make it, 69 if something else has its name."));
  add_storage_usage(*cmd.add_subcommand("usage", "Show what fills a folder"), context);
}

}  // namespace yoke::cli
