// `yoke jobs`: list the jobs that `yoke run` and `yoke train` run on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "yoke/base/format.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/cluster/held.h"
#include "yoke/device/process/info.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/view/processes.h"

namespace yoke::cli {
namespace {

using launch::FoundJob;
using std::chrono::system_clock;

std::string program_text(const launch::Job& job) {
  const auto line = fmt::format("{}", fmt::join(job.argv, std::string_view("\0", 1)));
  return view::command_text(
      {.name = device::short_command(line), .command = fmt::format("{}", fmt::join(job.argv, " "))},
      view::CommandText::kShort);
}

const std::string& command_of(const device::ProcessInfo& info) {
  return info.command.empty() ? info.name : info.command;
}

std::vector<std::string> cells(const FoundJob& found, system_clock::time_point now) {
  const auto pid = fmt::format("{}", found.address.pid);
  if (!found.job) {
    const auto info = device::describe_process(found.address.pid);
    const auto why = info.state == 'T' ? "(stopped, by Ctrl-Z?)" : "(does not answer)";
    return {pid, "?", fmt::format("{} {}", why, command_of(info)), "?", "?", "?", "?"};
  }
  const auto& job = *found.job;
  return {pid,
          job.run_id == "none" || job.has_random_id ? "-" : job.run_id,
          program_text(job),
          fmt::format("{}/{}{}{}", job.num_up(), job.num_ranks,
                      job.world_size > 0 ? fmt::format(" here of {}", job.world_size) : "",
                      job.is_stopping ? " stopping" : ""),
          fmt::format("{}/{}", job.num_restarts, to_text(job.restarts)),
          format_duration(now - job.started_at),
          job.folder};
}

Table to_table(const std::vector<FoundJob>& jobs, bool with_user) {
  Table table{.columns = {{"job", Align::kRight},
                          {"run id", Align::kLeft, 6},
                          {"program", Align::kLeft, 16},
                          {"ranks"},
                          {"restarts"},
                          {"elapsed", Align::kRight},
                          {"where", Align::kLeft, 12}}};
  for (const auto& job : jobs) table.rows.push_back(cells(job, system_clock::now()));
  if (!with_user) return table;
  table.columns.insert(table.columns.begin() + 1, {"user", Align::kLeft, 6});
  for (size_t i = 0; i < jobs.size(); ++i) {
    table.rows[i].insert(table.rows[i].begin() + 1, device::user_name(jobs[i].address.uid));
  }
  return table;
}

/// Allocations that have started, as their files say. Slurm is not asked, so that --watch costs it nothing.
std::vector<cluster::Allocation> started_allocations(const Context& context) {
  auto all = cluster::list_allocations(context.environment);
  const auto now = system_clock::to_time_t(system_clock::now());
  std::erase_if(all, [&](const auto& one) { return !one.is_ready() || (one.until != 0 && one.until < now); });
  return all;
}

Json to_json(const std::vector<FoundJob>& jobs, const Context& context) {
  const std::chrono::duration<double> now = system_clock::now().time_since_epoch();
  Json json = {{"time_seconds", now.count()}, {"host", host_name()}, {"jobs", Json::array()}};
  for (const auto& [address, job] : jobs) {
    Json one = {{"pid", address.pid}, {"user", device::user_name(address.uid)}, {"answers", job.has_value()}};
    if (job) one.update(launch::to_json(*job));
    if (!job) one["command"] = command_of(device::describe_process(address.pid));
    json["jobs"].push_back(std::move(one));
  }
  json["allocations"] = json_list(started_allocations(context), [](const auto& one) { return to_json(one); });
  return json;
}

struct JobsArgs {
  bool json = false;
  Repetition repetition;
};

/// A line for each allocation.
std::string allocations_text(const Context& context) {
  std::string text;
  for (const auto& one : started_allocations(context)) {
    std::vector<std::string> names;
    for (const auto& node : one.nodes) names.push_back(printable(node.name));
    text += fmt::format("allocation {}{}: {}", one.job, one.name.empty() ? "" : fmt::format(" ({})", one.name),
                        fmt::join(names, ", "));
    const auto left = system_clock::from_time_t(one.until) - system_clock::now();
    if (one.until != 0 && left > left.zero()) {
      text += fmt::format(", {} left", format_rough_duration(std::chrono::ceil<std::chrono::seconds>(left)));
    }
    text += fmt::format("; yoke run --in {} ...\n", one.job);
  }
  return text;
}

std::string jobs_text(const std::vector<FoundJob>& jobs, const JobsArgs& args, const Context& context) {
  const bool is_root = geteuid() == 0;
  if (args.json) {
    return json_record(to_json(jobs, context), args.repetition);
  }
  const auto held = allocations_text(context);
  if (jobs.empty())
    return (is_root ? "no job runs here under yoke\n" : "no job of yours runs here under yoke\n") + held;
  return to_text(to_table(jobs, is_root), output_width(context)) + held;
}

int run_jobs(const JobsArgs& args, Context& context) {
  repeat(args.repetition, args.json ? PictureKind::kRecords : PictureKind::kText, context, [&](int64_t /*number*/) {
    const auto jobs = launch::find_jobs();
    return Picture{
        .time = system_clock::now(), .host = host_name(), .text = jobs_text(jobs, args, context), .notes = ""};
  });
  return kExitOk;
}

}  // namespace

void add_jobs(CLI::App& cmd, Context& context) {
  auto& args = add_args<JobsArgs>(cmd, context, run_jobs);
  cmd.add_flag("--json", args.json, "Print JSON: all that is known, rank by rank");
  add_watch_option(cmd, args.repetition);
  cmd.footer(
      examples("  yoke jobs                    your jobs on this machine; everybody's for root\n"
               "  yoke jobs --watch 5          again every 5 s, changes highlighted\n"
               "  yoke jobs --json | jq '.jobs[].ranks[] | select(.state != \"running\")'\n"
               "\n"
               "A job in a container with a network or with PIDs of its own is seen inside that container.\n"
               "\n"
               "Exit status: 0, also when there is none."));
}

}  // namespace yoke::cli
