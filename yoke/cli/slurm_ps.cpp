// `yoke slurm ps`: list the jobs of a cluster, where they run, and why the others wait.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/base/table.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/slurm.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/job_file.h"
#include "yoke/slurm/job/query.h"

namespace yoke::cli {
namespace {

/// How long --watch waits for a slurmctld that does not answer.
constexpr std::chrono::minutes kMostSilence{10};

struct SlurmPsArgs {
  std::vector<std::string> jobs;
  bool all = false, json = false;
  Repetition repetition;
};

std::string where_text(const slurm::Job& job) {
  return job.is_waiting() ? "(" + (job.reason.empty() ? "no reason yet" : job.reason) + ")" : job.node_list;
}

/// When a waiting job is expected to start, or how long a job runs already.
std::string time_text(const slurm::Job& job) {
  if (!job.is_waiting()) return format_duration(job.elapsed);
  return job.started ? "starts " + moment_text(*job.started).substr(0, 16) : "-";
}

Table slurm_table(const std::vector<slurm::Job>& jobs, bool with_user) {
  // Of a narrow terminal, the job, its state and where it is or why it waits are the last to go.
  Table table{.columns = {{"job"},
                          {"name", Align::kLeft, 8, 7},
                          {"partition", Align::kLeft, 6, 3},
                          {"state"},
                          {"nodes", Align::kRight, 0, 5},
                          {"GPUs", Align::kRight, 0, 4},
                          {"time", Align::kLeft, 0, 6},
                          {"limit", Align::kRight, 0, 1},
                          {"restarts", Align::kRight, 0, 2},
                          {"where", Align::kLeft, 12}},
              .rows = {}};
  for (const auto& job : jobs) {
    table.rows.push_back({short_id(job), job.name, job.partition, job.state, std::to_string(job.num_nodes),
                          job.num_gpus == 0 ? "-" : std::to_string(job.num_gpus), time_text(job),
                          job.limit ? format_duration(*job.limit) : "-",
                          job.num_restarts == 0 ? "-" : std::to_string(job.num_restarts), where_text(job)});
    if (with_user) table.rows.back().insert(table.rows.back().begin() + 1, job.user);
  }
  if (with_user) table.columns.insert(table.columns.begin() + 1, {"user", Align::kLeft, 6, 8});
  return table;
}

/// What each reason in the table means, once.
std::string reasons_text(const std::vector<slurm::Job>& jobs) {
  std::vector<std::string> told;
  std::string text;
  for (const auto& job : jobs) {
    const auto reason = job.reason.substr(0, job.reason.find(','));
    if (!job.is_waiting() || reason.empty() || std::ranges::find(told, reason) != told.end()) continue;
    told.push_back(reason);
    const auto words = slurm::explain_reason(job.reason);
    if (words.meaning.empty()) continue;
    text += fmt::format("{}{}: {}{}{}\n", text.empty() ? "\n" : "", printable(reason), words.meaning,
                        words.next.empty() ? "" : "; ", words.next);
  }
  return text;
}

std::string missing_text(const std::vector<std::string>& missing) {
  return fmt::format("job{} {} neither wait{} nor run{}; `yoke slurm report` shows jobs that have ended\n",
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), missing.size() == 1 ? "s" : "",
                     missing.size() == 1 ? "s" : "");
}

/// Whether `job` is the one that a user named, or a task or a component of it, or tasks that wait together and have it.
bool is_named(const slurm::Job& job, const slurm::JobTarget& target) {
  const auto& name = target.name;
  if (target.range) return target.contains(job);
  if (name.task) {
    const bool is_cut = job.array == name.number && array_tasks_of(job).empty();
    return is_cut || slurm::JobRange{name.number, {*name.task}}.contains(job);
  }
  const auto own = slurm::parse_job_name(job.id);
  if (name.component) return own == name;
  return job.number == name.number || job.array == name.number || (own && own->number == name.number);
}

std::string slurm_ps_text(const SlurmPsArgs& args, const Context& context) {
  const bool is_all = args.all || !args.jobs.empty();
  const auto user = device::user_name(geteuid());
  std::vector<slurm::JobTarget> names;
  slurm::QueueOptions asked{.user = is_all ? "" : user};
  for (const auto& word : args.jobs) {
    for (auto& target : slurm::require_job_targets(word)) {
      asked.jobs.push_back(to_text(target.name));
      names.push_back(std::move(target));
    }
  }
  auto jobs = slurm::queued_jobs(asked, context.environment);
  const auto is_wanted = [&](const slurm::Job& job) {
    return names.empty() || std::ranges::any_of(names, [&](const auto& name) { return is_named(job, name); });
  };
  std::erase_if(jobs, [&](const slurm::Job& job) { return !is_wanted(job); });  // squeue shows all components
  std::vector<std::string> missing;
  for (const auto& name : names) {
    if (std::ranges::none_of(jobs, [&](const auto& job) { return is_named(job, name); }))
      missing.push_back(to_text(name));
  }
  if (args.json) {
    nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
    for (const auto& job : jobs) json["jobs"].push_back(to_json(job));
    if (!names.empty()) json["missing"] = missing;
    return json_record(json, args.repetition);
  }
  if (jobs.empty()) {
    if (!args.jobs.empty()) return missing_text(missing);
    return args.all ? "no job waits or runs on this cluster\n"
                    : fmt::format("no job of {} waits or runs on this cluster\n", printable(user));
  }
  const auto of_missing = missing.empty() ? "" : "\n" + missing_text(missing);
  return to_text(slurm_table(jobs, is_all), table_width(context)) + reasons_text(jobs) + of_missing;
}

int run_slurm_ps(const SlurmPsArgs& args, Context& context) {
  if (args.all && !args.jobs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--all lists every job, so name no JOB with it");
  }
  for (const auto& job : args.jobs) slurm::require_job_targets(job);
  std::optional<Clock::time_point> silent_until;
  repeat(args.repetition, args.json ? PictureKind::kRecords : PictureKind::kText, context, [&](int64_t number) {
    Picture picture{.time = std::chrono::system_clock::now(), .host = "slurm", .text = "", .notes = ""};
    try {
      picture.text = slurm_ps_text(args, context);
      silent_until.reset();
    } catch (const Error& error) {  // slurmctld restarts, perhaps
      const bool may_return = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimeout;
      const bool is_first = !silent_until;
      if (is_first) silent_until = Clock::now() + kMostSilence;
      if (number == 0 || !may_return || Clock::now() >= *silent_until) throw;
      const auto text =
          fmt::format("{}; trying again for {}\n", printable(error.what()),
                      format_rough_duration(std::chrono::ceil<std::chrono::seconds>(*silent_until - Clock::now())));
      if (!args.json) picture.text = text;
      if (args.json && is_first) std::cerr << speaker(context) << text << std::flush;
    }
    return picture;
  });
  return kExitOk;
}

}  // namespace

void add_slurm_ps(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmPsArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("JOB", args->jobs, "These jobs alone, whoever owns them")->type_name("JOB")->expected(0, -1);
  cmd.add_flag("--all", args->all, "The jobs of all users");
  cmd.add_flag("--json", args->json, "Print JSON");
  add_watch_option(cmd, args->repetition);
  cmd.footer(
      examples("  yoke slurm ps                your jobs: where they run, or why they wait and until when\n"
               "  yoke slurm ps 4121           one job, or all tasks of an array\n"
               "  yoke slurm ps '4131_[1-3]'   these tasks of it; 5-7 and 5,9 are several jobs\n"
               "  yoke slurm ps --all          everybody's\n"
               "  yoke slurm ps --watch 30     again every 30 s; each time takes slurmctld some work\n"
               "\n"
               "Below the table stands what each reason to wait means, and what to do. A start that is\n"
               "expected is slurmctld's estimate: jobs that end early or come later change it.\n"
               "\n"
               "Exit status: 0, also when there is none; 75 if slurmctld or munge cannot be reached, 124 if\n"
               "slurmctld gives no answer in 15 s. With --watch, this is tried again for 10 minutes."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_ps(*args, context); });
}

}  // namespace yoke::cli
