#include "yoke/slurm/job/log_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/slurm/job/account.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

/// Adds the files of the job's ranks, which are in the job's folder.
void add_ranks(std::vector<LogFile>& files, const std::filesystem::path& folder, const std::string& job_id) {
  if (folder.empty()) return;
  for (const auto& one : rank_outputs(folder, job_id)) files.push_back({job_id, one.path, false, to_text(one)});
}

constexpr size_t kReadBytes = 1 << 16;

}  // namespace

std::vector<LogFile> log_files_of(const std::vector<Job>& jobs) {
  std::vector<LogFile> files;
  for (const auto& job : jobs) {
    if (job.is_waiting() && job.num_restarts == 0) continue;
    if (const auto name = parse_job_name(job.id); name && name->component.value_or(0) > 0) continue;
    const auto out = expand_path(job.out, job), err = expand_path(job.err, job);
    if (!out.empty()) files.push_back({job.id, out, false});
    if (!err.empty() && err != out) files.push_back({job.id, err, true});
    add_ranks(files, job.folder, job.id);
  }
  return files;
}

std::vector<Job> recorded_jobs(const JobName& name, const Environment& environment) {
  std::vector<Job> jobs;
  std::map<std::string, size_t> places;
  for (const auto& account : accounts_of(name, environment)) {
    auto job = account.job;
    job.out = output_option(account.submit_line, 'o');
    job.err = output_option(account.submit_line, 'e');
    if (job.out.empty()) job.out = job.array ? "slurm-%A_%a.out" : "slurm-%j.out";
    const auto [place, is_first] = places.try_emplace(job.id, jobs.size());
    if (is_first) jobs.emplace_back();
    jobs[place->second] = std::move(job);  // an earlier run has the same files
  }
  return jobs;
}

std::vector<LogFile> noted_log_files(const JobName& name, const Environment& environment) {
  const auto note = note_of(name.number, environment);
  if (!note) return {};
  auto path = text_member(*note, "output");
  const Job task{.number = name.number,
                 .array = name.number,
                 .array_task = name.task ? std::to_string(*name.task) : "",
                 .folder = text_member(*note, "folder")};
  path = expand_path(path, task);
  if (path.find('%') != path.npos) return log_files_in(std::filesystem::path(path).parent_path(), name);
  if (path.empty() || access(path.c_str(), F_OK) != 0) return {};
  std::vector<LogFile> files = {{to_text(name), path, false}};
  add_ranks(files, task.folder, to_text(name));
  return files;
}

std::vector<LogFile> log_files_in(const std::filesystem::path& folder, const JobName& name) {
  std::vector<LogFile> files;
  for (const auto& path : entries_of(folder)) {
    const auto file = path.filename().string();
    const auto job = job_of_file(file);
    const bool is_output = file.ends_with(".out") || file.ends_with(".err") || file.ends_with(".log");
    if (!job || !is_output || job->number != name.number || (name.task && job->task != name.task)) continue;
    const auto rank = parse_rank_output(file);
    files.push_back({to_text(*job), path.string(), file.ends_with(".err"), rank ? to_text(*rank) : ""});
  }
  return files;
}

void LogReader::print_new(std::optional<int64_t> num_lines, const Print& print) {
  char buffer[kReadBytes];
  const auto fd = open_regular_file(path_);
  struct stat now = {};
  if (fstat(fd.value(), &now) != 0) throw system_error(errno, "reading " + path_);
  if (!std::exchange(has_begun_, true)) {
    at_ = num_lines ? begin_of_last_lines(fd.value(), *num_lines) : 0;
  } else if (now.st_size < at_ || now.st_ino != file_) {  // written anew
    finish(print);
    at_ = 0;
  }
  file_ = now.st_ino;
  for (ssize_t count; (count = pread(fd.value(), buffer, sizeof buffer, at_)) > 0; at_ += count) {
    rest_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (auto end = rest_.find('\n'); end != rest_.npos; begin = end + 1, end = rest_.find('\n', begin)) {
      print(std::string_view(rest_).substr(begin, end - begin));
    }
    rest_.erase(0, begin);
    if (rest_.size() > sizeof buffer) finish(print);  // a line without an end
  }
}

void LogReader::finish(const Print& print) {
  if (!rest_.empty()) print(std::exchange(rest_, ""));
}

}  // namespace yoke::slurm
