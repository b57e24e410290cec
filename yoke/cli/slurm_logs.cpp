// `yoke slurm logs`: print what a job's batch script and its steps have printed, and follow it.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/slurm/job/job_note.h"
#include "yoke/slurm/job_file.h"
#include "yoke/slurm/outputs.h"
#include "yoke/slurm/query.h"

namespace yoke::cli {
namespace {

using SlurmClock = std::chrono::steady_clock;

struct SlurmLogsArgs {
  std::string job;
  bool follow = false;
  std::optional<int64_t> num_lines;
};

constexpr std::chrono::milliseconds kReadFilesEvery{200};
// slurmctld serves thousands of users: the pauses between questions grow from the first to the second length.
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{5000}, kPauseOfSilence{15'000};

/// The time between two looks at the files: one of thousands must not be too much for their server.
constexpr std::chrono::milliseconds kPauseForEachFile{1};

/// A file to which a job writes.
struct SlurmOutput {
  std::string job_id, path;
  bool is_error = false;
  std::string rank = {};  ///< "rank 3" or "node 1": the file is that of one rank, or of the ranks of one node.
};

/// Adds the files of the job's ranks (`yoke slurm submit --file-per-rank`), which are in the job's folder.
void add_ranks(std::vector<SlurmOutput>& outputs, const std::filesystem::path& folder, const std::string& job_id) {
  if (folder.empty()) return;
  for (const auto& one : slurm::rank_outputs(folder, job_id)) {
    outputs.push_back({job_id, one.path, false, to_text(one)});
  }
}

std::vector<SlurmOutput> outputs_of(const std::vector<slurm::Job>& jobs) {
  std::vector<SlurmOutput> outputs;
  for (const auto& job : jobs) {
    if (job.is_waiting() && job.num_restarts == 0) continue;
    if (const auto name = slurm::parse_job_name(job.id); name && name->component.value_or(0) > 0) continue;
    const auto out = slurm::expand_path(job.out, job), err = slurm::expand_path(job.err, job);
    if (!out.empty()) outputs.push_back({job.id, out, false});
    if (!err.empty() && err != out) outputs.push_back({job.id, err, true});
    add_ranks(outputs, job.folder, job.id);
  }
  return outputs;
}

/// slurmctld has forgotten the job. The accounts have its folder and its line of submission, but not the lines
/// "#SBATCH --output" of its script.
std::vector<slurm::Job> recorded_jobs(const slurm::JobName& name, const Environment& environment) {
  std::vector<slurm::Job> jobs;
  std::map<std::string, size_t> places;
  for (const auto& account : slurm::accounts_of(name, environment)) {
    auto job = account.job;
    job.out = slurm::output_option(account.submit_line, 'o');
    job.err = slurm::output_option(account.submit_line, 'e');
    if (job.out.empty()) job.out = job.array ? "slurm-%A_%a.out" : "slurm-%j.out";
    const auto [place, is_first] = places.try_emplace(job.id, jobs.size());
    if (is_first) jobs.emplace_back();
    jobs[place->second] = std::move(job);  // an earlier run has the same files
  }
  return jobs;
}

/// The files in `folder` whose names have the job's number.
std::vector<SlurmOutput> outputs_in(const std::filesystem::path& folder, const slurm::JobName& name) {
  std::vector<SlurmOutput> outputs;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto file = at->path().filename().string();
    const auto job = slurm::job_of_file(file);
    const bool is_output = file.ends_with(".out") || file.ends_with(".err") || file.ends_with(".log");
    if (!job || !is_output || job->number != name.number || (name.task && job->task != name.task)) continue;
    const auto rank = slurm::parse_rank_output(file);
    outputs.push_back({to_text(*job), at->path().string(), file.ends_with(".err"), rank ? to_text(*rank) : ""});
  }
  std::ranges::sort(outputs, {}, &SlurmOutput::path);
  return outputs;
}

/// The files that exist of those that `yoke slurm submit` has noted.
std::vector<SlurmOutput> noted_outputs(const slurm::JobName& name, const Environment& environment) {
  const auto note = slurm::note_of(name.number, environment);
  if (!note) return {};
  auto path = slurm::note_text(*note, "output");
  const slurm::Job task{.number = name.number,
                        .array = name.number,
                        .array_task = name.task ? std::to_string(*name.task) : "",
                        .folder = slurm::note_text(*note, "folder")};
  path = slurm::expand_path(path, task);
  if (path.find('%') != path.npos) return outputs_in(std::filesystem::path(path).parent_path(), name);
  if (path.empty() || access(path.c_str(), F_OK) != 0) return {};
  std::vector<SlurmOutput> outputs = {{to_text(name), path, false}};
  add_ranks(outputs, task.folder, to_text(name));
  return outputs;
}

/// The order of names in which slurm-1-rank10.out comes after slurm-1-rank2.out.
struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const { return strverscmp(a.c_str(), b.c_str()) < 0; }
};

/// Reads a file from where it was left. The file is open only meanwhile: an array may have thousands.
class OutputReader {
 public:
  explicit OutputReader(SlurmOutput output) : output_(std::move(output)) {}

  const SlurmOutput& output() const { return output_; }
  bool has_begun() const { return begun_; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  /// Prints complete lines that are new, at first those from the last `num_lines` on.
  /// Errors  those of open_regular_file().
  void print_new(std::optional<int64_t> num_lines) {
    char buffer[1 << 16];
    const auto fd = open_regular_file(output_.path);
    struct stat now = {};
    if (fstat(fd.value(), &now) != 0) throw system_error(errno, "reading " + output_.path);
    if (!std::exchange(begun_, true)) {
      at_ = num_lines ? begin_of_lines(fd.value(), *num_lines) : 0;
    } else if (now.st_size < at_ || now.st_ino != file_) {  // written anew
      if (!rest_.empty()) print(std::exchange(rest_, ""));
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
      if (rest_.size() > sizeof buffer) print(std::exchange(rest_, ""));  // a line without an end
    }
  }

  /// Prints what is left of a line without an end.
  void finish() {
    if (!rest_.empty()) print(std::exchange(rest_, ""));
  }

 private:
  static off_t begin_of_lines(int fd, int64_t count) {
    const off_t size = lseek(fd, 0, SEEK_END);
    char buffer[1 << 16];
    for (off_t end = size; end > 0 && count > 0;) {
      const auto begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof buffer));
      const ssize_t num_read = pread(fd, buffer, static_cast<size_t>(end - begin), begin);
      if (num_read <= 0) break;
      for (ssize_t i = num_read - 1; i >= 0; --i) {
        if (buffer[i] == '\n' && begin + i + 1 < size && --count == 0) return begin + i + 1;
      }
      end = begin;
    }
    return count == 0 ? size : 0;
  }

  void print(std::string_view line) const {
    auto& to = output_.is_error ? std::cerr : std::cout;
    const bool is_terminal = isatty(output_.is_error ? STDERR_FILENO : STDOUT_FILENO) == 1;
    to << prefix_ << (is_terminal ? printable_with_colours(line) : std::string(line)) << '\n';
  }

  SlurmOutput output_;
  std::string prefix_;
  bool begun_ = false;
  off_t at_ = 0;
  ino_t file_ = 0;
  std::string rest_;
};

std::string waiting_text(const slurm::Job& job) {
  const auto words = slurm::explain_reason(job.reason);
  return fmt::format("job {} waits in the queue{}{}{}", short_id(job), job.num_restarts == 0 ? "" : " again",
                     job.reason.empty() ? "" : " (" + printable(job.reason) + ")",
                     words.meaning.empty() ? "" : fmt::format(": {}", words.meaning));
}

/// "what it printed before is in a, b", or nothing.
std::string kept_text(const std::string& path) {
  std::string names;
  for (const auto& kept : slurm::kept_outputs(path)) names += (names.empty() ? "" : ", ") + printable(kept);
  return names.empty() ? "" : "; what it printed before is in " + names;
}

class SlurmLogs {
 public:
  SlurmLogs(const SlurmLogsArgs& args, slurm::JobTarget target, const Context& context)
      : args_(args), target_(std::move(target)), name_(target_.name), context_(context) {}

  int run() {
    const bool is_live = look_at_jobs();
    if (args_.follow && is_live) {
      follow();
    } else if (readers_.empty()) {
      const auto waiting = std::ranges::find_if(jobs_, &slurm::Job::is_waiting);
      if (waiting != jobs_.end()) {
        throw Error(ErrorCode::kNotFound, "{}; it has printed nothing yet, and `yoke slurm logs -f {}` waits for it",
                    waiting_text(*waiting), shell_word(to_text(target_)));
      }
    }
    int num_missing = 0;
    for (auto& [_, reader] : readers_) {
      if (!print_last(reader)) ++num_missing;
      reader.finish();
    }
    std::cout.flush();
    return num_missing == 0 ? kExitOk : exit_status(ErrorCode::kNotFound);
  }

 private:
  /// Finds the files. Returns whether slurmctld knows the job.
  bool look_at_jobs() {
    std::optional<Error> failure;
    try {
      ask_slurmctld();
      if (!jobs_.empty()) {
        add(outputs_of(jobs_));
        return true;
      }
      jobs_ = recorded_jobs(name_, context_.environment);
      std::erase_if(jobs_, [&](const slurm::Job& job) { return !target_.contains(job); });
      add(outputs_of(jobs_));
      if (!readers_.empty() && std::ranges::all_of(readers_, [](const auto& one) {
            return access(one.second.output().path.c_str(), F_OK) == 0;
          })) {
        return false;
      }
    } catch (const Error& error) {
      failure = error;
    }
    auto outputs = noted_outputs(name_, context_.environment);
    const bool is_noted = !outputs.empty();
    if (!is_noted) outputs = outputs_in(".", name_);
    std::erase_if(outputs, [&](const SlurmOutput& one) {
      const auto job = slurm::parse_job_name(one.job_id);
      return target_.range && !(job && job->task && std::ranges::binary_search(target_.range->tasks, *job->task));
    });
    if (!outputs.empty()) {
      std::cerr << fmt::format("yoke slurm logs: {}; this is what {}\n",
                               failure ? printable(failure->what()) : "Slurm has forgotten where the job wrote",
                               is_noted ? "the files say that `yoke slurm submit` has noted" + noted_cluster()
                                        : "the files in this folder say");
      readers_.clear();
      add(outputs);
      return false;
    }
    const bool lacks_accounts = failure && failure->code() == ErrorCode::kFailedPrecondition;
    if (failure && !lacks_accounts) throw *failure;
    if (readers_.empty()) {
      throw Error(
          ErrorCode::kNotFound,
          "Slurm knows no job {}{}; `yoke slurm ps` lists the jobs that wait or run. If its output file exists, "
          "call this in its folder",
          to_text(target_),
          lacks_accounts ? ": it forgets jobs minutes after their ends, and this one keeps no accounts" : "");
    }
    return false;
  }

  /// Of which cluster the note is, unless that is known to be the one here.
  std::string noted_cluster() const {
    const auto note = slurm::note_of(name_.number, context_.environment);
    const auto cluster = note ? slurm::note_text(*note, "cluster") : "";
    return cluster.empty() || cluster == slurm::cluster_here(context_.environment)
               ? ""
               : fmt::format(" for job {} of cluster {}", name_.number, printable(cluster));
  }

  /// Asks for the jobs that the user named. Errors  those of known_jobs().
  void ask_slurmctld() {
    jobs_ = slurm::known_jobs(name_, context_.environment);
    std::erase_if(jobs_, [&](const slurm::Job& job) { return !target_.contains(job); });
  }

  /// Whether lines must name their task: also of an array whose other tasks have not started yet.
  bool is_several() const {
    std::set<std::string> ids;
    for (const auto& [_, reader] : readers_) ids.insert(reader.output().job_id);
    size_t num_tasks = 0;
    for (const auto& job : jobs_) num_tasks += array_tasks_of(job).size();
    return ids.size() > 1 || num_tasks > 1;
  }

  void add(const std::vector<SlurmOutput>& outputs) {
    for (const auto& output : outputs) readers_.try_emplace(output.path, output);
    const bool is_several = this->is_several();
    for (auto& [_, reader] : readers_) {
      const auto& [job_id, path, is_error, rank] = reader.output();
      reader.set_prefix(!is_several ? (rank.empty() ? "" : rank + ": ")
                                    : fmt::format("{}{}{}: ", job_id, rank.empty() ? "" : " ", rank));
    }
  }

  /// Prints what is left of a file that should be there, or tells why it cannot be read.
  bool print_last(OutputReader& reader) {
    const auto& output = reader.output();
    try {
      reader.print_new(is_late_ ? std::nullopt : args_.num_lines);
      return true;
    } catch (const Error& error) {
      if (reader.has_begun()) return true;  // it was removed, or `yoke slurm resume` has renamed it
      const auto job = std::ranges::find(jobs_, output.job_id, &slurm::Job::id);
      std::string text;
      if (error.code() == ErrorCode::kNotFound && job != jobs_.end()) text = unprinted_text(*job);
      if (text.empty()) text = fmt::format("the output of job {}: {}", output.job_id, printable(error.what()));
      text += kept_text(output.path);
      if (told_.insert(text).second) std::cerr << "yoke slurm logs: " << text << '\n';
      return false;
    }
  }

  /// Why a job has no file, although Slurm knows its name. Empty: it should have one.
  static std::string unprinted_text(const slurm::Job& job) {
    if (job.is_waiting()) return waiting_text(job) + "; it has printed nothing since it was put back into the queue";
    if (!job.has_ended() || job.has_run()) return "";
    return job.num_restarts == 0
               ? fmt::format("job {} is {}: it ended before it started, so it has printed nothing", job.id, job.state)
               : fmt::format("job {} is {}: it ended before it started again, so it has printed nothing more", job.id,
                             job.state);
  }

  /// Prints what is new in a file that may come later.
  void print_if_there(OutputReader& reader) const {
    try {
      reader.print_new(is_late_ ? std::nullopt : args_.num_lines);
    } catch (const Error&) {
    }
  }

  void follow() {
    std::string told;
    auto pause = kFirstPause;
    auto next_question = SlurmClock::now() + pause;
    while (true) {
      for (auto& [_, reader] : readers_) print_if_there(reader);
      is_late_ = true;
      std::cout.flush();
      if (!std::cout) return;  // main() reports the error
      const bool has_ended = std::ranges::all_of(jobs_, &slurm::Job::has_ended);
      if (has_ended || jobs_.empty()) return;
      const bool has_opened = std::ranges::any_of(readers_, [](const auto& one) { return one.second.has_begun(); });
      if (!has_opened && jobs_.front().is_waiting()) {
        const auto earlier = readers_.empty() ? "" : kept_text(readers_.begin()->first);
        tell(told, waiting_text(jobs_.front()) + earlier);
      } else if (has_opened) {
        tell_of_silence();
      }
      const auto of_all = kPauseForEachFile * readers_.size();
      poll(nullptr, 0, static_cast<int>(std::max<int64_t>(kReadFilesEvery.count(), of_all.count())));
      if (SlurmClock::now() < next_question) continue;
      pause = std::min(pause * 3 / 2, kLongestPause);
      try {
        ask_slurmctld();
        add(outputs_of(jobs_));
      } catch (const Error& error) {
        tell(told, fmt::format("{}; following the files meanwhile", error.what()));
        pause = kPauseOfSilence;
      }
      next_question = SlurmClock::now() + pause;
    }
  }

  /// Says once why nothing new comes: each job waits, also again after a restart.
  void tell_of_silence() {
    const auto is_open = [](const slurm::Job& job) { return !job.has_ended(); };
    const auto waiting = std::ranges::find_if(jobs_, &slurm::Job::is_waiting);
    if (waiting == jobs_.end() ||
        std::ranges::any_of(jobs_, [&](const auto& job) { return is_open(job) && !job.is_waiting(); })) {
      return;
    }
    // Of an array, the jobs that wait change with each task that starts.
    const auto key = fmt::format("{} {}", waiting->array.value_or(waiting->number), waiting->num_restarts);
    if (!told_.insert(key).second) return;
    std::cerr << "yoke slurm logs: " << printable(waiting_text(*waiting)) << std::endl;
  }

  /// Prints a message unless it was the last one.
  static void tell(std::string& told, const std::string& text) {
    if (told == text) return;
    told = text;
    std::cerr << "yoke slurm logs: " << printable(text) << std::endl;
  }

  const SlurmLogsArgs& args_;
  const slurm::JobTarget target_;
  const slurm::JobName name_;
  const Context& context_;
  std::vector<slurm::Job> jobs_;
  std::map<std::string, OutputReader, ByNumber> readers_;  ///< By path.
  std::set<std::string> told_;                             ///< About files that cannot be read, and about silence.
  bool is_late_ = false;  ///< A file that appears from now on is new, so --lines does not shorten it.
};

int run_slurm_logs(const SlurmLogsArgs& args, const Context& context) {
  auto targets = slurm::require_job_targets(args.job);
  if (targets.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} are several jobs; name one, or an array, or tasks of it as '123_[1-3]'", printable(args.job));
  }
  targets[0].name.component.reset();  // the batch script is that of all components
  return SlurmLogs(args, targets[0], context).run();
}

}  // namespace

void add_slurm_logs(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmLogsArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("JOB", args->job, "The number of the job, as 123, or of a task of an array, as 123_4")
      ->type_name("JOB")
      ->required();
  cmd.add_flag("-f,--follow", args->follow, "Go on with new lines until the job ends; waits for it to start");
  add_number(cmd, "-n,--lines", args->num_lines, {"N", 0, 1e9}, "The last N lines of each file alone");
  cmd.footer(
      examples("  yoke slurm logs 4121          what it has printed\n"
               "  yoke slurm logs -f 4121       and all to come, until it ends\n"
               "  yoke slurm logs -n 5 4121     the last 5 lines; of an array, of each task\n"
               "  yoke slurm logs 4121_7        one task of an array; '4121_[1-3]' are several\n"
               "\n"
               "slurmctld tells where a job writes. After it has forgotten the job, the accounts (sacct) tell\n"
               "the folder and the command line; or the note of `yoke slurm submit` tells the file; or files in\n"
               "this folder with the job's number are taken.\n"
               "\n"
               "With files of ranks (yoke slurm submit --file-per-rank), lines begin with the rank, or the node.\n"
               "Files that `yoke slurm resume` has renamed are named if the job has no other one yet.\n"
               "\n"
               "Exit status: 0; 66 if there is no such job or file, or it has not started; 75 if slurmctld or\n"
               "munge cannot be reached; 124 if slurmctld gives no answer in 15 s."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_logs(*args, context); });
}

}  // namespace yoke::cli
