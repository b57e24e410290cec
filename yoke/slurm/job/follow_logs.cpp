#include "yoke/slurm/job/follow_logs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job/log_files.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

constexpr std::chrono::milliseconds kReadFilesEvery{200}, kPauseOfSilence{15'000};
/// The time between two looks at the files: one of thousands must not be too much for their server.
constexpr std::chrono::milliseconds kPauseForEachFile{1};

/// The order of names in which slurm-1-rank10.out comes after slurm-1-rank2.out.
struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const { return strverscmp(a.c_str(), b.c_str()) < 0; }
};

std::string waiting_text(const Job& job) {
  const auto words = explain_reason(job.reason);
  return fmt::format("job {} waits in the queue{}{}{}", short_id(job), job.num_restarts == 0 ? "" : " again",
                     job.reason.empty() ? "" : " (" + printable(job.reason) + ")",
                     words.meaning.empty() ? "" : fmt::format(": {}", words.meaning));
}

/// Why a job has no file, although Slurm knows its name. Empty: it should have one.
std::string unprinted_text(const Job& job) {
  if (job.is_waiting()) return waiting_text(job) + "; it has printed nothing since it was put back into the queue";
  if (!job.has_ended() || job.has_run()) return "";
  return job.num_restarts == 0
             ? fmt::format("job {} is {}: it ended before it started, so it has printed nothing", job.id, job.state)
             : fmt::format("job {} is {}: it ended before it started again, so it has printed nothing more", job.id,
                           job.state);
}

/// "what it printed before is in a, b", or nothing.
std::string kept_text(const std::string& path) {
  std::string names;
  for (const auto& kept : kept_outputs(path)) names += (names.empty() ? "" : ", ") + printable(kept);
  return names.empty() ? "" : "; what it printed before is in " + names;
}

class JobLogs {
 public:
  JobLogs(const LogsRequest& request, const Environment& environment, const LogPage& page, const Tell& tell)
      : request_(request), name_(request.target.name), environment_(environment), page_(page), tell_(tell) {}

  bool run() {
    const bool is_live = look_at_jobs();
    if (request_.follows && is_live) {
      follow();
    } else if (logs_.empty()) {
      const auto waiting = std::ranges::find_if(jobs_, &Job::is_waiting);
      if (waiting != jobs_.end()) {
        throw Error(ErrorCode::kNotFound, "{}; it has printed nothing yet, and `yoke slurm logs -f {}` waits for it",
                    waiting_text(*waiting), shell_word(to_text(request_.target)));
      }
    }
    bool has_all = true;
    for (auto& [_, log] : logs_) {
      has_all = print_last(log) && has_all;
      log.reader.finish(printer_of(log));
    }
    page_.flush();
    return has_all;
  }

 private:
  struct Log {
    LogFile file;
    LogReader reader;
    std::string prefix = {};
  };

  LogReader::Print printer_of(const Log& log) const {
    return [this, &log](std::string_view line) {
      page_.print({.prefix = log.prefix, .text = line, .is_error = log.file.is_error});
    };
  }

  /// Finds the files. Returns whether slurmctld knows the job.
  bool look_at_jobs() {
    std::optional<Error> failure;
    try {
      ask_slurmctld();
      if (!jobs_.empty()) {
        add(log_files_of(jobs_));
        return true;
      }
      jobs_ = recorded_jobs(name_, environment_);
      std::erase_if(jobs_, [&](const Job& job) { return !request_.target.contains(job); });
      add(log_files_of(jobs_));
      const auto is_there = [](const auto& log) { return access(log.first.c_str(), F_OK) == 0; };
      if (!logs_.empty() && std::ranges::all_of(logs_, is_there)) return false;
    } catch (const Error& error) {
      failure = error;
    }
    if (add_what_files_say(failure)) return false;
    const bool lacks_accounts = failure && failure->code() == ErrorCode::kFailedPrecondition;
    if (failure && !lacks_accounts) throw *failure;
    if (logs_.empty()) {
      throw Error(
          ErrorCode::kNotFound,
          "Slurm knows no job {}{}; `yoke slurm ps` lists the jobs that wait or run. If its output file exists, "
          "call this in its folder",
          to_text(request_.target),
          lacks_accounts ? ": it forgets jobs minutes after their ends, and this one keeps no accounts" : "");
    }
    return false;
  }

  /// Takes the files of a note, or else those in this folder, instead of what Slurm says. Returns whether there are
  /// any.
  bool add_what_files_say(const std::optional<Error>& failure) {
    auto files = noted_log_files(name_, environment_);
    const bool is_noted = !files.empty();
    if (!is_noted) files = log_files_in(".", name_);
    const auto& range = request_.target.range;
    std::erase_if(files, [&](const LogFile& one) {
      const auto job = parse_job_name(one.job_id);
      return range && !(job && job->task && std::ranges::binary_search(range->tasks, *job->task));
    });
    if (files.empty()) return false;
    tell_(Told::kNews, fmt::format("{}; this is what {}",
                                   failure ? printable(failure->what()) : "Slurm has forgotten where the job wrote",
                                   is_noted ? "the files say that `yoke slurm submit` has noted" + noted_cluster()
                                            : "the files in this folder say"));
    logs_.clear();
    add(files);
    return true;
  }

  /// Of which cluster the note is, unless that is known to be the one here.
  std::string noted_cluster() const {
    const auto note = note_of(name_.number, environment_);
    const auto cluster = note ? text_member(*note, "cluster") : "";
    return cluster.empty() || cluster == cluster_here(environment_)
               ? ""
               : fmt::format(" for job {} of cluster {}", name_.number, printable(cluster));
  }

  /// Asks for the jobs that the user named. Errors  those of known_jobs().
  void ask_slurmctld() {
    jobs_ = known_jobs(name_, environment_);
    std::erase_if(jobs_, [&](const Job& job) { return !request_.target.contains(job); });
  }

  /// Whether lines must name their task: also of an array whose other tasks have not started yet.
  bool is_several() const {
    std::set<std::string> ids;
    for (const auto& [_, log] : logs_) ids.insert(log.file.job_id);
    size_t num_tasks = 0;
    for (const auto& job : jobs_) num_tasks += array_tasks_of(job).size();
    return ids.size() > 1 || num_tasks > 1;
  }

  void add(const std::vector<LogFile>& files) {
    for (const auto& file : files) logs_.try_emplace(file.path, Log{file, LogReader(file.path)});
    const bool is_several = this->is_several();
    for (auto& [_, log] : logs_) {
      const auto& [job_id, path, is_error, rank] = log.file;
      log.prefix = !is_several ? (rank.empty() ? "" : rank + ": ")
                               : fmt::format("{}{}{}: ", job_id, rank.empty() ? "" : " ", rank);
    }
  }

  /// Prints what is new. A file that appears later is new, so the number of lines does not shorten it.
  void print_new(Log& log) { log.reader.print_new(is_late_ ? std::nullopt : request_.num_lines, printer_of(log)); }

  /// Prints what is left of a file that should be there, or tells why it cannot be read.
  bool print_last(Log& log) {
    try {
      print_new(log);
      return true;
    } catch (const Error& error) {
      if (log.reader.has_begun()) return true;  // it was removed, or `yoke slurm resume` has renamed it
      const auto job = std::ranges::find(jobs_, log.file.job_id, &Job::id);
      std::string text;
      if (error.code() == ErrorCode::kNotFound && job != jobs_.end()) text = unprinted_text(*job);
      if (text.empty()) text = fmt::format("the output of job {}: {}", log.file.job_id, printable(error.what()));
      text += kept_text(log.file.path);
      if (told_.insert(text).second) tell_(Told::kNews, text);
      return false;
    }
  }

  void follow() {
    auto pause = request_.first_pause;
    auto next_question = Clock::now() + pause;
    while (true) {
      for (auto& [_, log] : logs_) {
        try {
          print_new(log);
        } catch (const Error&) {  // it may come later
        }
      }
      is_late_ = true;
      if (!page_.flush()) return;
      const bool has_ended = std::ranges::all_of(jobs_, &Job::has_ended);
      if (has_ended || jobs_.empty()) return;
      const bool has_opened = std::ranges::any_of(logs_, [](const auto& one) { return one.second.reader.has_begun(); });
      if (!has_opened && jobs_.front().is_waiting()) {
        tell_news(waiting_text(jobs_.front()) + (logs_.empty() ? "" : kept_text(logs_.begin()->first)));
      } else if (has_opened) {
        tell_of_silence();
      }
      const auto of_all = kPauseForEachFile * static_cast<int64_t>(logs_.size());
      std::this_thread::sleep_for(std::max(std::min(kReadFilesEvery, request_.first_pause), of_all));
      if (Clock::now() < next_question) continue;
      pause = std::min(pause * 3 / 2, request_.longest_pause);
      try {
        ask_slurmctld();
        add(log_files_of(jobs_));
      } catch (const Error& error) {
        tell_news(fmt::format("{}; following the files meanwhile", error.what()));
        pause = kPauseOfSilence;
      }
      next_question = Clock::now() + pause;
    }
  }

  /// Says once why nothing new comes: each job waits, also again after a restart.
  void tell_of_silence() {
    const auto is_open = [](const Job& job) { return !job.has_ended(); };
    const auto waiting = std::ranges::find_if(jobs_, &Job::is_waiting);
    if (waiting == jobs_.end() ||
        std::ranges::any_of(jobs_, [&](const auto& job) { return is_open(job) && !job.is_waiting(); })) {
      return;
    }
    // Of an array, the jobs that wait change with each task that starts.
    const auto key = fmt::format("{} {}", waiting->array.value_or(waiting->number), waiting->num_restarts);
    if (told_.insert(key).second) tell_(Told::kNews, printable(waiting_text(*waiting)));
  }

  /// Tells it unless it was the last news.
  void tell_news(const std::string& text) {
    if (std::exchange(last_news_, text) != text) tell_(Told::kNews, printable(text));
  }

  const LogsRequest& request_;
  const JobName name_;
  const Environment& environment_;
  const LogPage& page_;
  const Tell& tell_;
  std::vector<Job> jobs_;
  std::map<std::string, Log, ByNumber> logs_;  ///< By path.
  std::set<std::string> told_;                 ///< About files that cannot be read, and about silence.
  std::string last_news_;
  bool is_late_ = false;
};

}  // namespace

bool show_logs(const LogsRequest& request, const Environment& environment, const LogPage& page, const Tell& tell) {
  return JobLogs(request, environment, page, tell).run();
}

}  // namespace yoke::slurm
