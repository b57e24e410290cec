#include "yoke/slurm/job/resume_job.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/moment.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/job_file.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/job/sweep_folder.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostScriptBytes = 64 << 20;

/// The script to submit for `name`, a job or the task of an array whose script is `script`.
/// Errors  kInvalidArgument: all tasks would run again, or there is no such task.
std::string script_for(const JobName& name, const std::string& script) {
  const auto array = array_of_script(script);
  if (!array) {
    if (!name.task) return script;
    throw Error(ErrorCode::kInvalidArgument, "job {} was no array, so it has no task {}", name.number, *name.task);
  }
  if (!name.task) {
    const auto tasks = array_tasks_of(Job{.array_task = *array});
    throw Error(
        ErrorCode::kInvalidArgument,
        "job {0} was an array ({1}), which slurmctld has forgotten, and tasks of it may have succeeded; name the "
        "task to resume, as {0}_{2}. `yoke slurm report {0}` may know how they ended",
        name.number, *array, tasks.empty() ? 0 : tasks.front());
  }
  if (!may_have_task(*array, *name.task)) {
    throw Error(ErrorCode::kInvalidArgument, "job {} was an array with the tasks {}, so it has no task {}", name.number,
                *array, *name.task);
  }
  return script_of_task(script, *name.task);
}

/// What the accounts have of a job that slurmctld has forgotten, its last run at the end; empty if there are none.
std::vector<Account> forgotten_accounts(const JobName& name, const Environment& environment) {
  try {
    return accounts_of(name, environment);
  } catch (const Error&) {
    return {};
  }
}

/// Resuming a job that has succeeded is rarely meant, but its script may have hidden a failure. Empty for other states.
std::string success_text(const std::string& id, const std::string& state) {
  if (state != "COMPLETED") return "";
  return fmt::format(
      "job {} is COMPLETED: it ended with status 0, so its program has probably done all its work, and does it again "
      "unless a checkpoint says that nothing is left",
      id);
}

/// The error for a job that slurmctld has forgotten, and for which there is no script of this user.
Error no_script(const JobName& name, const std::optional<nlohmann::ordered_json>& note,
                const Environment& environment) {
  const auto begin = fmt::format("job {} cannot be put back into the queue: slurmctld has forgotten it", to_text(name));
  constexpr std::string_view kEnd = "a program that resumes goes on from its newest checkpoint";
  if (const auto cluster = note ? "" : cluster_of_other_note(name.number, environment); !cluster.empty()) {
    return Error(ErrorCode::kNotFound,
                 "{}. The job {} of which `yoke slurm submit` has kept a note is of cluster {}; resume that one there",
                 begin, name.number, printable(cluster));
  }
  if (const auto file = note ? text_member(*note, "script") : ""; !file.empty()) {
    const auto why = why_not_own(file);
    struct stat status {};
    const bool is_foreign = lstat(file.c_str(), &status) == 0 && status.st_uid != geteuid();
    return Error(
        is_foreign ? ErrorCode::kPermissionDenied : ErrorCode::kNotFound,
        "{}, and the script that `yoke slurm submit` kept is not run: {}{}. Submit the program again in {} with "
        "`yoke slurm submit`; {}",
        begin, why.empty() ? printable(file) + " cannot be read or is too large" : why,
        is_foreign ? ", who may have replaced it, because others can write to its folder" : "",
        printable(text_member(*note, "folder")), kEnd);
  }
  const auto accounts = forgotten_accounts(name, environment);
  if (accounts.empty()) {
    return Error(ErrorCode::kNotFound,
                 "job {} cannot be put back into the queue: slurmctld does not know it, and nothing tells where it was "
                 "submitted. Submit it again in its folder; {}",
                 to_text(name), kEnd);
  }
  const auto& last = accounts.back();
  const bool is_from_input = is_from_standard_input(last.submit_line);
  if (std::error_code ignored; is_from_input && fs::exists(fs::path(last.job.folder) / "sweep.json", ignored)) {
    return Error(
        ErrorCode::kNotFound,
        "{0}. It is of the sweep in {1}, of which `yoke slurm array --rerun {1}` runs all tasks again that have "
        "failed",
        begin, shell_word(printable(last.job.folder)));
  }
  if (is_from_input) {
    return Error(
        ErrorCode::kNotFound,
        "{}. It was submitted in {} with a script from standard input, of which Slurm keeps nothing, and there "
        "is no note of it here. Submit its program again there; {}",
        begin, printable(last.job.folder), kEnd);
  }
  return Error(ErrorCode::kNotFound, "{}. It was submitted in {} by: {}. Submit it again there; {}", begin,
               printable(last.job.folder), printable(last.submit_line), kEnd);
}

PlannedResume plan_submission(const JobName& name, const std::string& folder, const Environment& environment) {
  auto note = note_of(name.number, environment);
  const auto script = note ? read_own_file(text_member(*note, "script"), kMostScriptBytes) : std::nullopt;
  if (!script) throw no_script(name, note, environment);
  PlannedResume plan{.name = name, .job = {}, .note = std::move(*note), .script = script_for(name, *script)};
  plan.checkpoint = checkpoint_text(folder.empty() ? text_member(plan.note, "folder") : folder);
  const auto accounts = forgotten_accounts(name, environment);
  if (!accounts.empty()) plan.success = success_text(to_text(name), accounts.back().job.state);
  return plan;
}

/// " with task 3 alone", or nothing.
std::string part_text(const PlannedResume& plan) {
  return plan.name.task ? fmt::format(" with task {} alone", *plan.name.task) : "";
}

/// What becomes of the files of the job's ranks; empty if there are none.
std::string rank_files_text(const Job& job) {
  const auto files = rank_outputs(job.folder, job.id);
  if (files.empty()) return "";
  return fmt::format("it goes on in the files of its {}, from {} on; they are not renamed",
                     files.front().is_node ? "nodes" : "ranks", printable(files.front().path));
}

/// The task of a sweep may run again in its folder, as a task of another array. Two jobs there would destroy each
/// other's files. Errors  kFailedPrecondition: it does, or did.
void refuse_if_run_again(const Job& job, const Environment& environment) {
  const auto name = parse_job_name(job.id);
  std::error_code ignored;
  if (!name || !name->task || !fs::exists(fs::path(job.folder) / "sweep.json", ignored)) return;
  std::vector<std::string> jobs;
  try {
    jobs = jobs_of_task(open_sweep(job.folder, environment).sweep, *name->task);
  } catch (const Error&) {  // it is no sweep
    return;
  }
  const auto number = std::to_string(name->number);
  if (jobs.empty() || jobs.back() == number || std::ranges::find(jobs, number) == jobs.end()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "task {0} of the sweep in {1} runs again since, or has run again, as job {2}_{0}; if that has failed, "
              "`yoke slurm array --rerun {1}` runs it once more",
              *name->task, shell_word(printable(job.folder)), jobs.back());
}

/// Submits the script that `yoke slurm submit` has kept.
std::string submit_again(const PlannedResume& plan, const Environment& environment, const Tell& tell) {
  const auto folder = text_member(plan.note, "folder");
  std::error_code error;
  fs::current_path(folder, error);
  if (error) throw system_error(error.value(), "the folder of job " + to_text(plan.name) + ", " + printable(folder));
  const auto submitted = submit_with_note(plan.note, plan.script, environment, tell);
  return fmt::format(
      "slurmctld has forgotten job {0}, so its script is submitted again{4}: the new job is {1}\n{2}\noutput  {3}\n"
      "next    yoke slurm logs {1} -f\n",
      to_text(plan.name), text_member(submitted, "job"), plan.checkpoint, printable(text_member(submitted, "output")),
      part_text(plan));
}

std::string requeue(const PlannedResume& plan, const Environment& environment) {
  const auto& job = *plan.job;
  KeptOutputs kept;
  const auto out = expand_path(job.out, job), err = expand_path(job.err, job);
  try {
    kept.keep(out);
    if (err != out) kept.keep(err);
  } catch (const Error&) {
    kept.undo();
    throw;
  }
  try {
    ask({"scontrol", "requeue", job.id}, environment);
  } catch (const Error& error) {
    std::string advice;
    if (error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kUnavailable) {
      // It may be put back nevertheless, and then Slurm truncates the files.
      advice = fmt::format("; it may be in the queue nevertheless (`yoke slurm ps {}`){}{}", shell_word(job.id),
                           kept.text().empty() ? "" : ", and ", kept.text());
    } else {
      kept.undo();
    }
    if (error.code() == ErrorCode::kFailedPrecondition) {
      advice = ". A job that was submitted with --no-requeue, or of a site with JobRequeue=0, must be submitted again";
    }
    throw Error(error.code(), "{}{}", error.what(), advice);
  }
  auto text = fmt::format("job {} ({}) is in the queue again\n{}\n", job.id, job.state, plan.checkpoint);
  for (const auto& line : {kept.text(), rank_files_text(job)}) text += line.empty() ? "" : line + '\n';
  return text;
}

constexpr int64_t kMostFiles = 20'000;

bool is_checkpoint_name(const std::string& name) {
  for (const char* const end : {".pt", ".pth", ".ckpt", ".safetensors"}) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with("checkpoint") || name.starts_with("step-") || name.starts_with("step_") ||
         name.starts_with("global_step");
}

}  // namespace

/// The jobs that a user names, each once; of "42_[1-3]" each task.
std::vector<JobName> names_to_resume(const std::string& word) {
  std::vector<JobName> names;
  for (const auto& target : require_job_targets(word)) {
    if (!target.range) {
      names.push_back(target.name);
      continue;
    }
    for (const auto task : target.range->tasks) names.push_back({target.name.number, task});
  }
  for (auto& name : names) {
    if (name.component) name.component = 0;  // components go on together
  }
  std::ranges::sort(names, {}, [](const auto& name) { return std::tuple(name.number, name.task, name.component); });
  const auto repeated =
      std::ranges::unique(names, {}, [](const auto& name) { return std::tuple(name.number, name.task); });
  names.erase(repeated.begin(), repeated.end());
  return names;
}

PlannedResume plan_resume(const JobName& name, const std::string& folder, const Environment& environment) {
  auto jobs = known_jobs(name, environment);
  if (!jobs.empty() && jobs.front().id == fmt::format("{}+0", name.number)) {
    jobs.resize(1);
    jobs.front().id = std::to_string(name.number);
  }
  if (jobs.size() > 1) {
    const auto tasks = array_tasks_of(jobs.front());
    throw Error(ErrorCode::kInvalidArgument,
                "job {0} is an array; name the task to resume, as {0}_{1}, or several, as '{0}_[1-3]'. Of a sweep, "
                "`yoke slurm array --rerun {0}` "
                "runs all tasks again that have failed",
                to_text(name), tasks.empty() ? 0 : tasks.front());
  }
  if (jobs.empty()) return plan_submission(name, folder, environment);
  const auto& job = jobs.front();
  if (!job.has_ended()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "job {} is {}, so there is nothing to resume; `yoke slurm ps {}` shows it", job.id, job.state,
                shell_word(job.id));
  }
  if (job.user != device::user_name(geteuid())) {
    throw Error(
        ErrorCode::kPermissionDenied,
        "job {} is of {}, who must resume it, because its output needs another name first; `scontrol requeue {}` "
        "puts it back and truncates its output",
        job.id, printable(job.user), shell_word(job.id));
  }
  refuse_if_run_again(job, environment);
  return {.name = name,
          .job = job,
          .checkpoint = checkpoint_text(folder.empty() ? job.folder : folder),
          .success = success_text(job.id, job.state)};
}

std::string describe(const PlannedResume& plan) {
  if (plan.job) {
    return fmt::format("job {} ({}) would be put back into the queue: scontrol requeue {}\n{}\n", plan.job->id,
                       plan.job->state, shell_word(plan.job->id), plan.checkpoint);
  }
  return fmt::format(
      "slurmctld has forgotten job {}; its script {} would be submitted again in {}{}, as a new "
      "job with another number\n{}\n",
      to_text(plan.name), printable(text_member(plan.note, "script")), printable(text_member(plan.note, "folder")),
      part_text(plan), plan.checkpoint);
}

std::string resume(const PlannedResume& plan, const Environment& environment, const Tell& tell) {
  return plan.job ? requeue(plan, environment) : submit_again(plan, environment, tell);
}

CheckpointSearch find_checkpoint(const std::string& folder, int64_t most_files) {
  std::optional<NewestCheckpoint> newest;
  std::error_code error;
  int64_t num_seen = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error), ++num_seen) {
    if (num_seen == most_files) return {newest, false};
    if (at.depth() >= 4) at.disable_recursion_pending();
    const auto name = at->path().filename().string();
    if (name.starts_with('.')) at.disable_recursion_pending();
    if (!is_checkpoint_name(name) || name.ends_with(".tmp")) continue;
    std::error_code ignored;
    const auto time = at->last_write_time(ignored);
    if (!newest || time >= newest->time) newest = NewestCheckpoint{at->path().string(), time};
  }
  return {newest, true};
}

std::string checkpoint_text(const std::string& folder) {
  const auto [found, is_complete] = find_checkpoint(folder, kMostFiles);
  const auto extent = is_complete ? "" : fmt::format(" among the first {} files there", kMostFiles);
  if (!found) {
    return fmt::format("no checkpoint was found below {}{}; if the program keeps none elsewhere, it begins anew",
                       printable(folder), extent);
  }
  const auto time = std::chrono::file_clock::to_sys(found->time);
  return fmt::format("the newest checkpoint{} is {}, of {}", extent, printable(found->path),
                     moment_text(std::chrono::time_point_cast<std::chrono::system_clock::duration>(time)));
}

}  // namespace yoke::slurm
