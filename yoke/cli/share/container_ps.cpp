// `yoke container ps`, `logs` and `stop`: look after the containers that `yoke container run` has started.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/engine.h"
#include "yoke/keep/kept_containers.h"

namespace yoke::cli {
namespace {

int show_containers(bool wants_json, Context& context) {
  auto list = Json::array();
  Table table{{{"name"}, {"engine"}, {"devices"}, {"user"}, {"state"}, {"since"}, {"image"}}, {}};
  std::vector<int64_t> silent;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  for (const auto& row : keep::kept_containers()) {
    if (!row.json) {
      silent.push_back(row.socket.pid);
      continue;
    }
    list.push_back(*row.json);
    const auto devices = row.json->value("devices", std::vector<std::string>());
    const auto age = std::chrono::seconds(now - row.json->value("since", now));
    table.rows.push_back({printable(row.text("name")), row.text("engine"),
                          devices.empty() ? "none" : fmt::format("{}", fmt::join(devices, ",")),
                          printable(row.text("user")), row.text("state"), format_duration(age),
                          printable(row.text("image"))});
  }
  if (!silent.empty()) {
    constexpr size_t kMost = 5;
    const auto num_silent = silent.size();
    silent.resize(std::min(num_silent, kMost));
    std::cerr << fmt::format("{}note: {} not answer, so what {} is not listed: process {}{}\n", speaker(context),
                             num_silent == 1 ? "one keeper does" : fmt::format("{} keepers do", num_silent),
                             num_silent == 1 ? "it keeps" : "they keep", fmt::join(silent, ", "),
                             num_silent > kMost ? ", ..." : "");
  }
  if (wants_json) {
    print_json(Json{{"containers", list}}, context);
  } else {
    context.out << to_text(table, table_width(context));
  }
  return kExitOk;
}

int show_logs(const std::string& name, bool follows, Context& context) {
  const auto row = keep::find_container(name);
  const auto engine = row.text("engine");
  if (engine == "apptainer") {
    keep::copy_log_of(row, STDOUT_FILENO, follows);
    return kExitOk;
  }
  if (row.socket.uid != geteuid() && engine == "podman") {
    throw Error(ErrorCode::kPermissionDenied, "{} belongs to {}, and podman shows its output to that user only",
                printable(name), printable(row.text("user")));
  }
  const auto program = find_tool(engine, context.environment);
  if (!program) throw Error(ErrorCode::kNotFound, "PATH has no program {}", engine);
  std::vector<std::string> argv = {*program, "logs"};
  if (follows) argv.emplace_back("--follow");
  argv.push_back(row.text("name"));
  context.out.flush();
  execv(argv[0].c_str(), exec_pointers(argv).data());
  throw system_error(errno, "executing " + argv[0]);
}

int stop_containers(const std::vector<std::string>& names, Context& context) {
  std::vector<keep::KeptContainerRow> rows;
  for (const auto& name : names) rows.push_back(keep::find_container(name));  // all, before the first one is ended
  for (const auto& row : rows) {
    if (keep::stop_container(row)) context.out << "stopped " << printable(row.text("name")) << std::endl;
  }
  return kExitOk;
}

}  // namespace

void add_container_ps(CLI::App& cmd, Context& context) {
  auto& json = add_args<bool>(cmd, context, show_containers);
  cmd.add_flag("--json", json, "Print JSON");
  cmd.footer(
      examples("  yoke container ps\n"
               "  sudo yoke container ps    of all users"));
}

void add_container_logs(CLI::App& cmd, Context& context) {
  struct LogArgs {
    std::string name;
    bool follows = false;
  };
  auto args = std::make_shared<LogArgs>();
  cmd.add_option("NAME", args->name, "A container of `yoke container ps`, or the PID of its keeper")->required();
  cmd.add_flag("-f,--follow", args->follows, "Go on printing until the container ends");
  cmd.footer(examples("  yoke container logs -f ada_pytorch-1f3a"));
  cmd.callback([args, &context] { context.exit_code = show_logs(args->name, args->follows, context); });
}

void add_container_stop(CLI::App& cmd, Context& context) {
  auto& names = add_args<std::vector<std::string>>(cmd, context, stop_containers);
  cmd.add_option("NAME", names, "Containers of `yoke container ps`, or PIDs of their keepers")->required();
  cmd.footer(
      examples("  yoke container stop ada_pytorch-1f3a\n"
               "\n"
               "The program gets SIGTERM, and ten seconds later SIGKILL. Then its devices are free."));
}

}  // namespace yoke::cli
