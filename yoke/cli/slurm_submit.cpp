#include "yoke/cli/slurm_submit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/slurm.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/kept_script.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/job/submit.h"
#include "yoke/slurm/words/request.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNoteBytes = 16 << 20;

struct SubmitArgs {
  SlurmJobOptions job;
  bool json = false, dry = false, waits = false;
};

/// The value of `name` in the script: "slurm-%j.out" for "--output".
std::string directive_of(const slurm::ScriptPlan& plan, std::string_view name) {
  for (const auto& [option, why] : plan.directives) {
    if (option.starts_with(name) && option.size() > name.size() && option[name.size()] == '=') {
      return option.substr(name.size() + 1);
    }
  }
  return "";
}

/// A job whose output cannot be written fails without a word, after all the time that it has waited. Slurm makes
/// folders from 23.02 on (commit ecc671a141). Errors  kInvalidArgument: this is so, as far as it can be seen from here.
void check_output_of_job(const slurm::ScriptPlan& plan, const char* option,
                         const std::optional<slurm::Version>& version) {
  const auto pattern = directive_of(plan, option), name = directive_of(plan, "--job-name");
  if (pattern.empty()) return;
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (pattern.find('$') != pattern.npos || pattern.starts_with('~')) {
    refuse(
        fmt::format("{} {}: Slurm replaces no $NAME and no ~ there; write the whole path", option, printable(pattern)));
  }
  if (pattern.find('\\') != pattern.npos) {
    refuse(fmt::format("{} {}: Slurm drops backslashes, and then replaces nothing in the path; write it without",
                       option, printable(pattern)));
  }
  if (name.find('/') != name.npos && pattern.find("%x") != pattern.npos) {
    refuse(fmt::format("--job-name {}: %x in the output would name a file in a folder; use a name without /",
                       printable(name)));
  }
  std::error_code error;
  const auto here = fs::current_path(error).string();
  slurm::require_plain_folder(here, "submit from another one");
  if (pattern.find('%') == pattern.npos && fs::exists(pattern, error)) {  // a file that is there, or /dev/null
    if (fs::is_directory(pattern, error)) {
      refuse(fmt::format("{} {}: it is a folder; name a file in it, such as {}/slurm-%j.out", option,
                         printable(pattern), printable(pattern)));
    }
    if (access(pattern.c_str(), W_OK) == 0) return;
    throw system_error(errno, fmt::format("the output of the job, {}", printable(pattern)));
  }
  const auto folder = fs::path(pattern).parent_path();
  if (folder.string().find('%') != std::string::npos) return;
  const auto shown = folder.empty() ? here : folder.string();
  if (const auto missing = slurm::missing_output_folder(pattern, here)) {
    const bool makes_folders = version && *version >= slurm::Version{23, 2, 0};
    if (makes_folders) return;
    refuse(fmt::format(
        "{} {}: there is no folder {}, and Slurm before 23.02 does not make it; make it first: "
        "mkdir -p {}",
        option, printable(pattern), printable(missing->string()), shell_word(printable(missing->string()))));
  }
  if (fs::is_directory(folder.empty() ? fs::path(".") : folder, error) && access(shown.c_str(), W_OK) != 0) {
    throw system_error(errno, fmt::format("the output of the job in {}", printable(shown)));
  }
}

/// sbatch says of an index that is too large just that the specification is invalid. Errors  kInvalidArgument.
void check_array_size(const std::string& array, const Environment& environment) {
  const auto largest = slurm::check::largest_index(array);
  std::optional<int64_t> size;
  try {
    if (largest) size = slurm::max_array_size(environment);
  } catch (const Error&) {  // there is no Slurm here, or it does not answer: sbatch says so
  }
  if (!size || *largest < *size) return;
  throw Error(ErrorCode::kInvalidArgument,
              "--array {}: the largest index is {}, and those of this cluster are at most {} (MaxArraySize={}); submit "
              "several arrays, or let each task do the work of several",
              printable(array), *largest, *size - 1, *size);
}

/// Waits until the job, or each task of an array, has ended for good, and says what it waits for. Returns the exit
/// status of the one that failed first; 75 if Slurm ended it. Errors  kFailedPrecondition: what is left of it can never
/// start.
int wait_for_end(const std::string& job_id, const Context& context) {
  const auto name = slurm::require_job_name(job_id);
  std::map<int64_t, slurm::Job> jobs;  // slurmctld forgets tasks of an array while others still run
  auto pause = std::chrono::milliseconds(100);
  std::string last_state;
  bool is_unanswered = false;
  std::optional<slurm::Time> submitted;  // the accounts may still have nothing but an older job with this number
  while (true) {
    try {
      auto known = slurm::known_jobs(name, context.environment);
      if (!known.empty() && !submitted) submitted = known.front().submitted;
      if (known.empty()) {
        for (auto& account : slurm::accounts_of(name, context.environment)) {
          if (!(account.job.submitted < submitted)) known.push_back(std::move(account.job));
        }
      }
      if (known.empty()) throw Error(ErrorCode::kNotFound, "neither slurmctld nor the accounts know job {}", job_id);
      for (auto& job : known) jobs[job.number] = std::move(job);
      is_unanswered = false;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kFailedPrecondition || error.code() == ErrorCode::kNotFound) {
        throw Error(ErrorCode::kNotFound, "{}; so the end of job {} is not known, and its output may tell",
                    error.what(), job_id);
      }
      if (!is_unanswered) std::cerr << speaker(context) << error.what() << "; still waiting\n";
      is_unanswered = true;
    }
    const slurm::Job *running = nullptr, *failed = nullptr;
    bool never_starts = true;
    for (const auto& [_, job] : jobs) {
      if (!job.has_ended()) {
        if (running == nullptr || running->is_waiting()) running = &job;
        never_starts = never_starts && job.is_waiting() && slurm::never_starts(job.reason);
      } else if (job.state != "COMPLETED" && (failed == nullptr || job.ended < failed->ended)) {
        failed = &job;
      }
    }
    slurm::Job shown{.id = job_id, .state = running ? running->state : failed ? failed->state : "COMPLETED"};
    if (running != nullptr) shown.reason = running->reason;
    const auto state = jobs.empty() ? "" : state_text(shown);
    if (running != nullptr && never_starts) {
      throw Error(ErrorCode::kFailedPrecondition, "{}. It is still in the queue, and --wait does not wait for it",
                  state);
    }
    if (!state.empty() && state != last_state) std::cerr << state << '\n';
    last_state = state;
    if (!jobs.empty() && running == nullptr) {
      if (failed == nullptr) return kExitOk;
      return failed->exit_code > 0 ? failed->exit_code : exit_status(ErrorCode::kUnavailable);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(5000));
  }
}

/// Whether the name of a cluster can be a part of a file's name.
bool is_file_name(const std::string& name) { return !name.empty() && name.find('/') == name.npos; }

std::optional<Json> read_note(const fs::path& file) {
  const auto text = slurm::read_own_file(file, kMostNoteBytes);
  auto note = Json::parse(text.value_or(""), nullptr, false);
  return note.is_object() ? std::optional(std::move(note)) : std::nullopt;
}

/// Whether a note is of the newest job with this number, as far as the accounts tell.
bool is_of_newest(const Json& note, int64_t job, const Environment& environment) {
  const auto submitted = note.find("submitted");
  if (submitted == note.end() || !submitted->is_number_integer()) return true;
  try {
    return slurm::is_note_of(submitted->get<int64_t>(), note_text(note, "folder"),
                             slurm::accounts_of({.number = job, .task = {}}, environment));
  } catch (const Error&) {  // there are no accounts
    return true;
  }
}

/// The names in the folder of the output `pattern`. Empty: they are not known, because the folder differs by job.
std::set<std::string> names_beside(const fs::path& pattern) {
  std::set<std::string> names;
  const auto folder = pattern.parent_path();
  if (folder.string().find('%') != std::string::npos) return names;
  std::error_code error;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end; at.increment(error)) {
    names.insert(at->path().filename().string());
  }
  return names;
}

Json lines_as_json(const std::vector<slurm::Line>& lines) {
  auto result = Json::array();
  for (const auto& [text, why] : lines) result.push_back({{"what", text}, {"why", why}});
  return result;
}

std::string site_words(const slurm::FoundSite& site) { return fmt::format("{} ({})", site.site.name, site.why); }

int run_dry(const PlannedJob& job, const SubmitArgs& args, Context& context) {
  std::string start = "Slurm is not installed here";
  std::optional<Error> problem;
  try {
    if (find_program("sbatch", context.environment))
      start = slurm::test_submission(job.script, slurm::without_sbatch_variables(context.environment));
  } catch (const Error& error) {  // the script is shown nevertheless
    problem = error;
  }
  const int status = problem ? exit_status(problem->code()) : kExitOk;
  if (args.json) {
    print_json(Json{{"job", nullptr},
                          {"site", job.site.site.name},
                          {"script_text", job.script},
                          {"decisions", lines_as_json(job.plan.decisions)},
                          {"warnings", job.plan.warnings},
                          {"start", problem ? Json() : Json(start)},
                          {"problem", problem ? Json(problem->what()) : Json()}},
               context);
    return status;
  }
  context.out << job.script;
  context.out.flush();
  std::cerr << fmt::format("{}nothing is submitted; site {}; {}\n", speaker(context), site_words(job.site),
                           problem ? problem->what() : start);
  return status;
}

void print_submission(const Json& note, const PlannedJob& job, const SubmitArgs& args, Context& context) {
  if (args.json) {
    auto json = note;
    json["decisions"] = lines_as_json(job.plan.decisions);
    json["warnings"] = job.plan.warnings;
    print_json(json, context);
  } else {
    const auto id = note_text(note, "job"), script = note_text(note, "script");
    context.out << fmt::format("job {} ({}), site {}\n", id, note_text(note, "name"), site_words(job.site));
    for (const auto& [what, why] : job.plan.decisions) context.out << fmt::format("  {}: {}\n", what, why);
    context.out << fmt::format("output  {}\n", note_text(note, "output"));
    if (!script.empty()) context.out << fmt::format("script  {}\n", script);
    context.out << fmt::format("next    yoke slurm logs {0} -f; squeue -j {0}; scancel {0}\n", id);
  }
  context.out.flush();
}

int run_submit(const SubmitArgs& args, Context& context) {
  auto job = plan_job(args.job, context);
  std::ranges::move(check_program_here(args.job, context), std::back_inserter(job.plan.warnings));
  for (const auto* option : {"--output", "--error"}) check_output_of_job(job.plan, option, job.site.version);
  if (!args.job.request.array.empty()) check_array_size(args.job.request.array, context.environment);
  if (args.dry) return run_dry(job, args, context);
  std::string id;
  {
    const HeldSignals held;
    const auto note = submit_with_note({{"job", nullptr},
                                        {"name", directive_of(job.plan, "--job-name")},
                                        {"output_pattern", directive_of(job.plan, "--output")},
                                        {"site", job.site.site.name},
                                        {"ranks", job.plan.num_ranks},
                                        {"argv", context.rest}},
                                       job.script, context);
    id = note_text(note, "job");
    print_submission(note, job, args, context);
    if (!context.out) {
      const auto why = system_error(error_of(context.out), "writing the output");
      context.out.clear();
      throw Error(why.code(), "{}; job {} is submitted all the same", why.what(), id);
    }
  }
  return args.waits ? wait_for_end(id, context) : kExitOk;
}

}  // namespace

Json submit_with_note(Json note, const std::string& script, const Context& context) {
  const auto before = names_beside(note_text(note, "output_pattern"));  // the job may write as soon as it is submitted
  const auto submission = slurm::submit(script, slurm::without_sbatch_variables(context.environment));
  for (const auto& message : submission.messages) std::cerr << "sbatch: " << message << '\n';
  std::error_code ignored;
  const slurm::Job job{.number = parse_int(submission.job_id).value_or(0),
                       .array = parse_int(submission.job_id),
                       .name = note_text(note, "name"),
                       .user = device::user_name(geteuid()),
                       .folder = fs::current_path(ignored).string()};
  const auto cluster = submission.cluster.empty() ? cluster_here(context.environment) : submission.cluster;
  auto kept = fmt::format("{}/slurm-{}.sh", job.folder, submission.job_id);
  const bool had_script = fs::exists(kept, ignored);
  if (had_script && is_file_name(cluster)) {
    kept = fmt::format("{}/slurm-{}.{}.sh", job.folder, submission.job_id, cluster);
  }
  note["job"] = submission.job_id;
  note["cluster"] = cluster.empty() ? Json() : Json(cluster);
  note["folder"] = job.folder;
  note["script"] = kept;
  note["output"] = slurm::expand_path(note_text(note, "output_pattern"), job);
  if (had_script && before.contains(fs::path(note_text(note, "output")).filename())) {
    std::cerr << fmt::format(
        "{}warning: {} is also the output of another job {}, perhaps of another cluster; submit from "
        "another folder, or give -o with another name\n",
        speaker(context), printable(note_text(note, "output")), submission.job_id);
  }
  note["submitted"] = std::time(nullptr);
  try {
    slurm::write_text(kept, script);
    fs::permissions(kept, fs::perms::owner_read | fs::perms::owner_write);  // values of --env may be secrets
  } catch (const Error& problem) {
    std::cerr << speaker(context) << "warning: the script is not kept beside the output: " << problem.what() << '\n';
    note["script"] = nullptr;
  }
  const auto parent = slurm::jobs_folder(context.environment);
  if (!parent) return note;
  try {
    const auto folder = fs::path(*parent) / submission.job_id;
    make_private_folder(folder);
    const auto other = note_text(read_note(folder / "job.json").value_or(Json::object()), "cluster");
    const bool is_taken = !other.empty() && other != cluster && is_file_name(cluster);
    slurm::write_text(folder / (is_taken ? fmt::format("job.{}.json", cluster) : "job.json"), json_page(note));
  } catch (const std::exception& error) {  // the job runs without a note
    std::cerr << speaker(context) << "warning: no note of the job is kept: " << error.what() << '\n';
  }
  return note;
}

std::optional<Json> note_of(int64_t job, const Environment& environment) {
  const auto parent = slurm::jobs_folder(environment);
  if (!parent) return std::nullopt;
  const auto folder = fs::path(*parent) / std::to_string(job);
  auto note = read_note(folder / "job.json");
  if (!note) return std::nullopt;  // the file with a cluster's name is beside it
  const auto cluster = note_text(*note, "cluster"), here = cluster.empty() ? "" : cluster_here(environment);
  if (!here.empty() && here != cluster) {
    note = is_file_name(here) ? read_note(folder / fmt::format("job.{}.json", here)) : std::nullopt;
  }
  return note && is_of_newest(*note, job, environment) ? note : std::nullopt;
}

std::string cluster_of_other_note(int64_t job, const Environment& environment) {
  const auto parent = slurm::jobs_folder(environment);
  const auto note = parent ? read_note(fs::path(*parent) / std::to_string(job) / "job.json") : std::nullopt;
  const auto cluster = note ? note_text(*note, "cluster") : "";
  return cluster == cluster_here(environment) ? "" : cluster;
}

std::string cluster_here(const Environment& environment) {
  try {
    return slurm::cluster_name(environment);
  } catch (const Error&) {
    return "";
  }
}

void require_cluster(const std::string& cluster, const std::string& what, const Environment& environment) {
  const auto here = cluster.empty() ? "" : cluster_here(environment);
  if (here.empty() || here == cluster) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{0} is of cluster {1}, and the Slurm of this host is that of {2}; do this on a host of cluster {1}",
              printable(what), printable(cluster), printable(here));
}

std::string note_text(const Json& note, const char* key) {
  const auto found = note.find(key);
  return found != note.end() && found->is_string() ? found->get<std::string>() : "";
}

void add_slurm_submit(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SubmitArgs>();  // CLI11 keeps references to it; the callback owns it
  add_job_options(cmd, args->job);
  cmd.add_flag("--dry-run", args->dry, "Print the script, and ask Slurm when it could start; submit nothing");
  cmd.add_flag("--wait", args->waits, "Wait for the job's end, and exit with its status");
  cmd.add_flag("--json", args->json, "Print JSON");
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(examples(
      "  yoke slurm submit -N 2 -t 2h -- python train.py      one rank for each GPU of two nodes\n"
      "  yoke slurm submit --gpus-per-node 1 -t 30m -- python train.py --workers {cpus}\n"
      "  yoke slurm submit -N 2 -t 1h -- torchrun train.py    torchrun on each node\n"
      "  yoke slurm submit -t 10m --gpus-per-node 0 --ranks-per-node 4 -- ./train\n"
      "  yoke slurm submit -t 1h --dry-run -- python train.py\n"
      "\n"
      "{cpus} in the program's words is the number of CPUs of a rank, {gpus} that of GPUs of a node. The script is "
      "kept as slurm-JOB.sh in this folder, where also the output goes.\n"
      "\n"
      "Exit status: 0 once the job is submitted; 69 if Slurm refuses it; with --wait that of the job, 75 if Slurm "
      "ended "
      "it (time limit, cancelled, lost node), or 69 if it can never start (a dependency that cannot be fulfilled); or "
      "that of an error as `yoke --help` lists them."));
  cmd.callback([args, &context] { context.exit_code = run_submit(*args, context); });
}

}  // namespace yoke::cli
