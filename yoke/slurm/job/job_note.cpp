#include "yoke/slurm/job/job_note.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/job.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/words/options.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNoteBytes = 16 << 20;

/// Whether the name of a cluster can be a part of a file's name.
bool is_file_name(const std::string& name) { return !name.empty() && name.find('/') == name.npos; }

std::optional<Json> read_note(const fs::path& file) {
  const auto text = read_own_file(file, kMostNoteBytes);
  auto note = Json::parse(text.value_or(""), nullptr, false);
  return note.is_object() ? std::optional(std::move(note)) : std::nullopt;
}

/// Whether a note is of the newest job with this number, as far as the accounts tell.
bool is_of_newest(const Json& note, int64_t job, const Environment& environment) {
  const auto submitted = note.find("submitted");
  if (submitted == note.end() || !submitted->is_number_integer()) return true;
  try {
    return is_note_of(submitted->get<int64_t>(), text_member(note, "folder"),
                      accounts_of({.number = job, .task = {}}, environment));
  } catch (const Error&) {  // there are no accounts
    return true;
  }
}

/// The names in the folder of the output `pattern`. Empty: they are not known, because the folder differs by job.
std::set<std::string> names_beside(const fs::path& pattern) {
  std::set<std::string> names;
  const auto folder = pattern.parent_path();
  if (folder.string().find('%') != std::string::npos) return names;
  for (const auto& entry : entries_of(folder.empty() ? "." : folder)) names.insert(entry.filename().string());
  return names;
}

constexpr std::string_view kArrayDirective = "#SBATCH --array=";

/// Where the directive's line begins. npos if there is none before the first command, where Slurm stops to look.
size_t array_directive_at(std::string_view script) {
  for (size_t at = 0; at < script.size();) {
    const auto line = script.substr(at, script.find('\n', at) - at);
    if (line.starts_with(kArrayDirective)) return at;
    const auto first = line.find_first_not_of(" \t");
    if (first != line.npos && line[first] != '#') break;
    at += line.size() + 1;
  }
  return script.npos;
}

}  // namespace

Json submit_with_note(Json note, const std::string& script, const Environment& environment, const Tell& tell) {
  const auto before =
      names_beside(text_member(note, "output_pattern"));  // the job may write as soon as it is submitted
  const auto submission = submit_and_tell(script, without_sbatch_variables(environment), {}, tell);
  std::error_code ignored;
  const Job job{.number = parse_int(submission.job_id).value_or(0),
                .array = parse_int(submission.job_id),
                .name = text_member(note, "name"),
                .user = device::user_name(geteuid()),
                .folder = fs::current_path(ignored).string()};
  const auto cluster = cluster_of(submission, environment);
  auto kept = fmt::format("{}/slurm-{}.sh", job.folder, submission.job_id);
  const bool had_script = fs::exists(kept, ignored);
  if (had_script && is_file_name(cluster)) {
    kept = fmt::format("{}/slurm-{}.{}.sh", job.folder, submission.job_id, cluster);
  }
  note["job"] = submission.job_id;
  note["cluster"] = cluster.empty() ? Json() : Json(cluster);
  note["folder"] = job.folder;
  note["script"] = kept;
  note["output"] = expand_path(text_member(note, "output_pattern"), job);
  if (had_script && before.contains(fs::path(text_member(note, "output")).filename())) {
    tell(Told::kWarning, fmt::format("{} is also the output of another job {}, perhaps of another cluster; "
                                     "submit from another folder, or give -o with another name",
                                     printable(text_member(note, "output")), submission.job_id));
  }
  note["submitted"] = std::time(nullptr);
  try {
    replace_file(kept, script);
    fs::permissions(kept, fs::perms::owner_read | fs::perms::owner_write);  // values of --env may be secrets
  } catch (const Error& problem) {
    tell(Told::kWarning, fmt::format("the script is not kept beside the output: {}", problem.what()));
    note["script"] = nullptr;
  }
  const auto parent = jobs_folder(environment);
  if (!parent) return note;
  try {
    const auto folder = fs::path(*parent) / submission.job_id;
    make_private_folder(folder);
    const auto other = text_member(read_note(folder / "job.json").value_or(Json::object()), "cluster");
    const bool is_taken = !other.empty() && other != cluster && is_file_name(cluster);
    replace_file(folder / (is_taken ? fmt::format("job.{}.json", cluster) : "job.json"), json_page(note));
  } catch (const std::exception& error) {  // the job runs without a note
    tell(Told::kWarning, fmt::format("no note of the job is kept: {}", error.what()));
  }
  return note;
}

std::optional<Json> note_of(int64_t job, const Environment& environment) {
  const auto parent = jobs_folder(environment);
  if (!parent) return std::nullopt;
  const auto folder = fs::path(*parent) / std::to_string(job);
  auto note = read_note(folder / "job.json");
  if (!note) return std::nullopt;  // the file with a cluster's name is beside it
  const auto cluster = text_member(*note, "cluster"), here = cluster.empty() ? "" : cluster_here(environment);
  if (!here.empty() && here != cluster) {
    note = is_file_name(here) ? read_note(folder / fmt::format("job.{}.json", here)) : std::nullopt;
  }
  return note && is_of_newest(*note, job, environment) ? note : std::nullopt;
}

std::string cluster_of_other_note(int64_t job, const Environment& environment) {
  const auto parent = jobs_folder(environment);
  const auto note = parent ? read_note(fs::path(*parent) / std::to_string(job) / "job.json") : std::nullopt;
  const auto cluster = note ? text_member(*note, "cluster") : "";
  return cluster == cluster_here(environment) ? "" : cluster;
}

Submission submit_and_tell(const std::string& script, const Environment& environment,
                           const std::vector<std::string>& options, const Tell& tell) {
  auto submission = submit(script, environment, options);
  for (const auto& message : submission.messages) tell(Told::kOutput, "sbatch: " + message + "\n");
  return submission;
}

std::string cluster_of(const Submission& submission, const Environment& environment) {
  return submission.cluster.empty() ? cluster_here(environment) : submission.cluster;
}

std::string cluster_here(const Environment& environment) {
  try {
    return cluster_name(environment);
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

std::optional<std::string> array_of_script(std::string_view script) {
  const auto at = array_directive_at(script);
  if (at == script.npos) return std::nullopt;
  const auto words = words_of(script.substr(at, script.find('\n', at) - at).substr(kArrayDirective.size()));
  return words.empty() ? std::nullopt : std::optional(std::string(words.front()));
}

bool may_have_task(const std::string& value, int64_t task) {
  const auto tasks = array_tasks_of(Job{.array_task = value});
  return tasks.empty() || std::ranges::find(tasks, task) != tasks.end();
}

std::string script_of_task(std::string_view script, int64_t task) {
  const auto at = array_directive_at(script);
  if (at == script.npos) return std::string(script);
  const auto end = std::min(script.find('\n', at), script.size());
  return std::string(script.substr(0, at)) + std::string(kArrayDirective) + std::to_string(task) +
         std::string(script.substr(end));
}

bool is_note_of(int64_t submitted, std::string_view folder, const std::vector<Account>& accounts) {
  constexpr Seconds kClocks{600};
  if (accounts.empty() || !accounts.front().job.submitted) return true;
  const auto& job = accounts.front().job;
  return *job.submitted <= Time(Seconds(submitted)) + kClocks || job.folder == folder;
}

bool is_from_standard_input(std::string_view submit_line) {
  auto words = check::option_words(words_of(submit_line));
  if (words.empty() || base_name(words.front().text) != "sbatch") return false;
  words.erase(words.begin());
  const auto parsed = check::parse_options(check::kSbatch, words);
  const auto is_wrap = [](const check::GivenOption& option) { return std::string_view(option.spec->name) == "wrap"; };
  return parsed.num_used >= words.size() && std::ranges::none_of(parsed.given, is_wrap);
}

}  // namespace yoke::slurm
