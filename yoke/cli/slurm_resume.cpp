// `yoke slurm resume`: runs the script of a job again, so that its program goes on from its newest checkpoint.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/moment.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/slurm.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/sweep_folder.h"
#include "yoke/slurm/job_file.h"
#include "yoke/slurm/job_folder.h"
#include "yoke/slurm/kept_script.h"
#include "yoke/slurm/outputs.h"
#include "yoke/slurm/programs.h"
#include "yoke/slurm/query.h"

namespace yoke::cli {
namespace {

struct SlurmResumeArgs {
  std::string job, folder;
  bool dry_run = false;
};

namespace fs = std::filesystem;

constexpr int64_t kMostFiles = 20'000;
constexpr size_t kMostScriptBytes = 64 << 20;

struct NewestCheckpoint {
  std::string path;
  std::filesystem::file_time_type time;
};

/// Whether a name is what trainings call checkpoints: those of yoke, PyTorch, Lightning, Hugging Face, DeepSpeed.
bool is_checkpoint_name(const std::string& name) {
  for (const char* const end : {".pt", ".pth", ".ckpt", ".safetensors"}) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with("checkpoint") || name.starts_with("step-") || name.starts_with("step_") ||
         name.starts_with("global_step");
}

struct CheckpointSearch {
  std::optional<NewestCheckpoint> newest;
  bool is_complete = true;
};

/// Looks at no more than 20,000 files, five folders deep, because folders of jobs may be huge.
CheckpointSearch find_checkpoint(const std::string& folder) {
  std::optional<NewestCheckpoint> newest;
  std::error_code error;
  int64_t num_seen = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error), ++num_seen) {
    if (num_seen == kMostFiles) return {newest, false};
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
  const auto [found, is_complete] = find_checkpoint(folder);
  const auto extent = is_complete ? "" : fmt::format(" among the first {} files there", kMostFiles);
  if (!found) {
    return fmt::format("no checkpoint was found below {}{}; if the program keeps none elsewhere, it begins anew",
                       printable(folder), extent);
  }
  const auto time = std::chrono::file_clock::to_sys(found->time);
  return fmt::format("the newest checkpoint{} is {}, of {}", extent, printable(found->path),
                     moment_text(std::chrono::time_point_cast<std::chrono::system_clock::duration>(time)));
}

/// The script to submit for `name`, a job or the task of an array whose script is `script`.
/// Errors  kInvalidArgument: all tasks would run again, or there is no such task.
std::string script_for(const slurm::JobName& name, const std::string& script) {
  const auto array = slurm::array_of_script(script);
  if (!array) {
    if (!name.task) return script;
    throw Error(ErrorCode::kInvalidArgument, "job {} was no array, so it has no task {}", name.number, *name.task);
  }
  if (!name.task) {
    const auto tasks = slurm::array_tasks_of(slurm::Job{.array_task = *array});
    throw Error(
        ErrorCode::kInvalidArgument,
        "job {0} was an array ({1}), which slurmctld has forgotten, and tasks of it may have succeeded; name the "
        "task to resume, as {0}_{2}. `yoke slurm report {0}` may know how they ended",
        name.number, *array, tasks.empty() ? 0 : tasks.front());
  }
  if (!slurm::may_have_task(*array, *name.task)) {
    throw Error(ErrorCode::kInvalidArgument, "job {} was an array with the tasks {}, so it has no task {}", name.number,
                *array, *name.task);
  }
  return slurm::script_of_task(script, *name.task);
}

/// What the accounts have of a job that slurmctld has forgotten, its last run at the end; empty if there are none.
std::vector<slurm::Account> forgotten_accounts(const slurm::JobName& name, const Environment& environment) {
  try {
    return slurm::accounts_of(name, environment);
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

/// slurmctld has forgotten the job: submits the script that `yoke slurm submit` has kept.
int submit_again(const slurm::JobName& name, const nlohmann::ordered_json& note, const std::string& kept,
                 const SlurmResumeArgs& args, Context& context) {
  const auto script = script_for(name, kept);
  const auto folder = slurm::note_text(note, "folder"), file = slurm::note_text(note, "script");
  const auto checkpoint = checkpoint_text(args.folder.empty() ? folder : args.folder);
  const auto part = name.task ? fmt::format(" with task {} alone", *name.task) : "";
  const auto accounts = forgotten_accounts(name, context.environment);
  if (const auto text = accounts.empty() ? "" : success_text(to_text(name), accounts.back().job.state); !text.empty()) {
    std::cerr << "yoke slurm resume: " << text << '\n';
  }
  if (args.dry_run) {
    context.out << fmt::format(
        "slurmctld has forgotten job {}; its script {} would be submitted again in {}{}, as a new "
        "job with another number\n{}\n",
        to_text(name), printable(file), printable(folder), part, checkpoint);
    return kExitOk;
  }
  std::error_code error;
  fs::current_path(folder, error);
  if (error) throw system_error(error.value(), "the folder of job " + to_text(name) + ", " + printable(folder));
  const HeldSignals held;
  const auto submitted = slurm::submit_with_note(note, script, context.environment, tell_user(context));
  context.out << fmt::format(
      "slurmctld has forgotten job {0}, so its script is submitted again{4}: the new job is {1}\n{2}\noutput  {3}\n"
      "next    yoke slurm logs {1} -f\n",
      to_text(name), slurm::note_text(submitted, "job"), checkpoint, printable(slurm::note_text(submitted, "output")), part);
  context.out.flush();
  return kExitOk;
}

/// The error for a job that slurmctld has forgotten, and for which there is no script of this user.
Error no_script(const slurm::JobName& name, const std::optional<nlohmann::ordered_json>& note,
                const Environment& environment) {
  const auto begin = fmt::format("job {} cannot be put back into the queue: slurmctld has forgotten it", to_text(name));
  constexpr std::string_view kEnd = "a program that resumes goes on from its newest checkpoint";
  if (const auto cluster = note ? "" : slurm::cluster_of_other_note(name.number, environment); !cluster.empty()) {
    return Error(ErrorCode::kNotFound,
                 "{}. The job {} of which `yoke slurm submit` has kept a note is of cluster {}; resume that one there",
                 begin, name.number, printable(cluster));
  }
  if (const auto file = note ? slurm::note_text(*note, "script") : ""; !file.empty()) {
    const auto why = slurm::why_not_own(file);
    struct stat status {};
    const bool is_foreign = lstat(file.c_str(), &status) == 0 && status.st_uid != geteuid();
    return Error(
        is_foreign ? ErrorCode::kPermissionDenied : ErrorCode::kNotFound,
        "{}, and the script that `yoke slurm submit` kept is not run: {}{}. Submit the program again in {} with "
        "`yoke slurm submit`; {}",
        begin, why.empty() ? printable(file) + " cannot be read or is too large" : why,
        is_foreign ? ", who may have replaced it, because others can write to its folder" : "",
        printable(slurm::note_text(*note, "folder")), kEnd);
  }
  const auto accounts = forgotten_accounts(name, environment);
  if (accounts.empty()) {
    return Error(ErrorCode::kNotFound,
                 "job {} cannot be put back into the queue: slurmctld does not know it, and nothing tells where it was "
                 "submitted. Submit it again in its folder; {}",
                 to_text(name), kEnd);
  }
  const auto& last = accounts.back();
  const bool is_from_input = slurm::is_from_standard_input(last.submit_line);
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

int resume_forgotten(const slurm::JobName& name, const SlurmResumeArgs& args, Context& context) {
  const auto note = slurm::note_of(name.number, context.environment);
  const auto script = note ? slurm::read_own_file(slurm::note_text(*note, "script"), kMostScriptBytes) : std::nullopt;
  if (!script) throw no_script(name, note, context.environment);
  return submit_again(name, *note, *script, args, context);
}

/// What becomes of the files of the job's ranks; empty if there are none.
std::string rank_files_text(const slurm::Job& job) {
  const auto files = slurm::rank_outputs(job.folder, job.id);
  if (files.empty()) return "";
  return fmt::format("it goes on in the files of its {}, from {} on; they are not renamed",
                     files.front().is_node ? "nodes" : "ranks", printable(files.front().path));
}

/// The task of a sweep may run again in its folder, as a task of another array. Two jobs there would destroy each
/// other's files. Errors  kFailedPrecondition: it does, or did.
void refuse_if_run_again(const slurm::Job& job, const Environment& environment) {
  const auto name = slurm::parse_job_name(job.id);
  std::error_code ignored;
  if (!name || !name->task || !fs::exists(fs::path(job.folder) / "sweep.json", ignored)) return;
  std::vector<std::string> jobs;
  try {
    jobs = slurm::jobs_of_task(slurm::open_sweep(job.folder, environment).sweep, *name->task);
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

int resume_job(const slurm::JobName& name, const SlurmResumeArgs& args, Context& context) {
  auto jobs = slurm::known_jobs(name, context.environment);
  if (!jobs.empty() && jobs.front().id == fmt::format("{}+0", name.number)) {
    jobs.resize(1);
    jobs.front().id = std::to_string(name.number);
  }
  if (jobs.size() > 1) {
    const auto tasks = slurm::array_tasks_of(jobs.front());
    throw Error(ErrorCode::kInvalidArgument,
                "job {0} is an array; name the task to resume, as {0}_{1}, or several, as '{0}_[1-3]'. Of a sweep, "
                "`yoke slurm array --rerun {0}` "
                "runs all tasks again that have failed",
                to_text(name), tasks.empty() ? 0 : tasks.front());
  }
  if (jobs.empty()) return resume_forgotten(name, args, context);
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
  refuse_if_run_again(job, context.environment);
  const auto checkpoint = checkpoint_text(args.folder.empty() ? job.folder : args.folder);
  const auto success = success_text(job.id, job.state);
  if (args.dry_run) {
    if (!success.empty()) std::cerr << "yoke slurm resume: " << success << '\n';
    context.out << fmt::format("job {} ({}) would be put back into the queue: scontrol requeue {}\n{}\n", job.id,
                               job.state, shell_word(job.id), checkpoint);
    return kExitOk;
  }
  const HeldSignals held;
  slurm::KeptOutputs kept;
  const auto out = slurm::expand_path(job.out, job), err = slurm::expand_path(job.err, job);
  try {
    kept.keep(out);
    if (err != out) kept.keep(err);
  } catch (const Error&) {
    kept.undo();
    throw;
  }
  try {
    slurm::ask({"scontrol", "requeue", job.id}, context.environment);
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
  context.out << fmt::format("job {} ({}) is in the queue again\n{}\n", job.id, job.state, checkpoint);
  if (!kept.text().empty()) context.out << kept.text() << '\n';
  if (const auto text = rank_files_text(job); !text.empty()) context.out << text << '\n';
  context.out.flush();
  if (!success.empty())
    std::cerr << fmt::format("yoke slurm resume: {}; `scancel {}` stops that\n", success, shell_word(job.id));
  return kExitOk;
}

/// The jobs that a user names, each once; of "42_[1-3]" each task.
std::vector<slurm::JobName> names_to_resume(const std::string& word) {
  std::vector<slurm::JobName> names;
  for (const auto& target : slurm::require_job_targets(word)) {
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

int run_slurm_resume(SlurmResumeArgs args, Context& context) {
  const auto names = names_to_resume(args.job);
  if (names.size() == 1) return resume_job(names[0], args, context);
  if (!args.folder.empty()) args.folder = fs::absolute(args.folder).string();  // resuming changes the working folder
  int status = kExitOk;
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      resume_job(names[i], args, context);
    } catch (const Error& error) {  // it does not keep the others from running again
      // A Slurm that does not answer would keep each of them waiting.
      const bool is_silent = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimeout;
      const bool is_end = is_silent && i + 1 < names.size();
      std::cerr << speaker(context) << printable(error.what())
                << (is_end ? fmt::format("; the others were not tried, from {} on", to_text(names[i + 1])) : "")
                << '\n';
      if (is_silent || status == kExitOk) status = exit_status(error.code());
      if (is_end) break;
    }
  }
  return status;
}

}  // namespace

void add_slurm_resume(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmResumeArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("JOB", args->job,
                 "A job that has ended, as 123, or a task of an array, as 123_4; '123_[1-3]' and 5-7 are several")
      ->type_name("JOB")
      ->required();
  cmd.add_option("--folder", args->folder, "Where to look for checkpoints, if not where the job started")
      ->type_name("FOLDER");
  cmd.add_flag("--dry-run", args->dry_run, "Say what would be done, and do nothing");
  cmd.footer(
      examples("  yoke slurm resume 4121             after a time limit, a failure or scancel\n"
               "  yoke slurm resume '4121_[1-3]'     these tasks of an array\n"
               "  yoke slurm resume --dry-run 4121   from which checkpoint it would go on\n"
               "\n"
               "The job keeps its number, its script and its options (scontrol requeue). If slurmctld has\n"
               "forgotten it (MinJobAge after its end), the script that `yoke slurm submit` has kept is\n"
               "submitted again in its folder, as a new job; of an array, the task that you name. The program must "
               "look for its newest checkpoint\n"
               "by itself, as yoke's trainings do.\n"
               "\n"
               "A job that has succeeded is resumed too, with a remark.\n"
               "\n"
               "Of several jobs, each is resumed once. If slurmctld gives no answer, the rest is not tried.\n"
               "\n"
               "Exit status: 0; 64 if the job is an array and no task is named; 66 if slurmctld has forgotten the\n"
               "job and there is no script; 69 if it has not ended or Slurm refuses; 75 if slurmctld or munge\n"
               "cannot be reached; 77 if the job, its output or its script is of another user; 124 if slurmctld\n"
               "gives no answer."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_resume(*args, context); });
}

}  // namespace yoke::cli
