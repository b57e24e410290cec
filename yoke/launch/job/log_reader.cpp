#include "yoke/launch/job/log_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/launch/output/line_assembler.h"

namespace yoke::launch {
namespace {

using Clock = std::chrono::steady_clock;
using OnLine = decltype(JobLogOptions::on_line);
using std::chrono::milliseconds;

constexpr milliseconds kLookAtFilesEvery{100};
constexpr std::chrono::seconds kLookAtJobEvery{1};

/// A stream of a rank that is written only to a file.
class LogFile {
 public:
  /// Opens the file with the rights of the job, because its user chose the path and what is there.
  /// Errors  as errno says, with the path; kDataLoss: it is not a regular file.
  LogFile(JobRank rank, LineStream stream, const Rights& rights)
      : rank_(std::move(rank)), stream_(stream), path_((stream == LineStream::kOut ? rank_.out : rank_.err).file) {
    with_rights(rights, [this] { fd_ = open_regular_file(path_); });
  }

  void skip_all_but_last(int64_t num_lines) {
    lseek(fd_.value(), begin_of_last_lines(fd_.value(), num_lines), SEEK_SET);
  }

  void print_new(const OnLine& on_line) {
    char buffer[1 << 16];
    std::string lines;
    for (ssize_t count; (count = read(fd_.value(), buffer, sizeof buffer)) > 0; lines.clear()) {
      assembler_.feed({buffer, static_cast<size_t>(count)}, lines);
      print(lines, on_line);
    }
  }
  void finish(const OnLine& on_line) {
    print_new(on_line);
    std::string lines;
    assembler_.finish(lines);
    print(lines, on_line);
  }

 private:
  void print(std::string_view lines, const OnLine& on_line) const {
    for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
      on_line(&rank_, stream_, lines.substr(0, end));
      lines.remove_prefix(end + 1);
    }
  }

  JobRank rank_;
  LineStream stream_;
  std::string path_;
  UniqueFd fd_;
  LineAssembler assembler_{""};
};

bool is_wanted(const JobRank& rank, const JobLogOptions& options) {
  return !options.rank || rank.rank == *options.rank;
}

const StreamPlan& stream_of(const JobRank& rank, LineStream which) {
  return which == LineStream::kOut ? rank.out : rank.err;
}

/// Returns the file to which the rank's stream is connected: "/dev/pts/3", "/home/ada/out.txt", "pipe:[4711]".
std::string target_of(const JobRank& rank, LineStream which) {
  std::error_code ignored;
  const auto link = fmt::format("/proc/{}/fd/{}", rank.pid, which == LineStream::kOut ? 1 : 2);
  const auto target = rank.is_up() ? std::filesystem::read_symlink(link, ignored).native() : std::string();
  return target.empty() ? "where `yoke run` itself writes to" : printable(target);
}

/// Opens the log files of the wanted ranks. If one cannot be opened, reports that and sets `lacks_some`.
std::vector<LogFile> open_files(const Job& job, const Rights& rights, const JobLogOptions& options, bool& lacks_some) {
  std::vector<LogFile> files;
  for (const auto& rank : job.ranks) {
    for (const auto which : {LineStream::kOut, LineStream::kErr}) {
      const auto& stream = stream_of(rank, which);
      if (!is_wanted(rank, options) || stream.to != StreamPlan::To::kNowhere || stream.file.empty()) continue;
      if (rank.host != job.host) {
        options.tell(Told::kNews, fmt::format("the log of rank {} is {} on {}", rank.rank, printable(stream.file),
                                              printable(rank.host)));
        continue;
      }
      try {
        files.emplace_back(rank, which, rights);
      } catch (const Error& error) {
        options.tell(Told::kNews, printable(error.what()));
        lacks_some = true;
      }
    }
  }
  return files;
}

/// Hands over the lines that there are, and if they are followed, new ones until the job ends.
class LogReader {
 public:
  LogReader(Job job, JobConnection connection, const JobLogOptions& options)
      : job_(std::move(job)),
        connection_(std::move(connection)),
        options_(options),
        files_(open_files(job_, connection_.rights(), options, lacks_files_)) {
    if (!options_.num_lines) return;
    for (auto& file : files_) file.skip_all_but_last(*options_.num_lines);
  }

  /// Returns whether everything was read.
  bool run() {
    connection_.ask_logs(options_.follow, options_.num_lines, options_.rank);
    auto look_at_job = Clock::now() + kLookAtJobEvery;
    while (!connection_.is_over() && !connection_.is_closed()) {
      const auto now = Clock::now();
      print_lines(now + (files_.empty() ? milliseconds(kLookAtJobEvery) : kLookAtFilesEvery));
      for (auto& file : files_) file.print_new(options_.on_line);
      if (!options_.on_turn()) return !lacks_files_;
      if (Clock::now() >= look_at_job) {
        look_at_new_attempt();
        look_at_job = Clock::now() + kLookAtJobEvery;
      }
    }
    for (auto& file : files_) file.finish(options_.on_line);
    options_.on_turn();
    if (connection_.is_over()) return !lacks_files_;
    options_.tell(
        Told::kNews,
        fmt::format("job {} hung up: it was killed, or did not wait for its last lines to be read here", job_.pid));
    return false;
  }

 private:
  void print_lines(JobTime until) {
    while (const auto line = connection_.read_line(until)) {
      check_size(*line);
      if (line->num_gone > 0) {
        options_.tell(
            Told::kNews,
            fmt::format("earlier lines are gone, {} of all ranks: the launcher keeps the last MiB", line->num_gone));
      }
      if (line->num_missed > 0) {
        options_.tell(Told::kNews,
                      fmt::format("{} lines were printed faster than they could be shown here", line->num_missed));
      }
      if (options_.rank && line->rank != *options_.rank) continue;
      options_.on_line(find_rank(job_, line->rank), line->stream, line->text);
      until = JobTime::min();  // do not wait for further lines
    }
  }

  /// A launcher keeps 1 MiB, but a program of another user may pretend to be one, and have no end.
  void check_size(const RecentLines::Line& line) {
    constexpr size_t kMostBytes = 16 << 20, kBytesOfHeader = 64;
    num_bytes_ += line.text.size() + kBytesOfHeader;
    if (options_.follow || num_bytes_ <= kMostBytes) return;
    throw Error(ErrorCode::kUnavailable,
                "job {} sends more lines than a launcher keeps, so what it has sent may have no end; `yoke logs -f` "
                "reads on",
                job_.pid);
  }

  /// Opens the files of the new attempt after a restart, because their names differ.
  void look_at_new_attempt() {
    auto connection = JobConnection::open(connection_.address(), Clock::now());
    if (!connection) return;
    connection->ask_job();
    auto job = connection->read_job(Clock::now() + kLookAtJobEvery);
    if (!job || job->num_restarts == job_.num_restarts) return;
    for (auto& file : files_) file.finish(options_.on_line);
    job_ = std::move(*job);
    files_ = open_files(job_, connection->rights(), options_, lacks_files_);
  }

  Job job_;
  JobConnection connection_;
  const JobLogOptions& options_;
  bool lacks_files_ = false;
  std::vector<LogFile> files_;
  size_t num_bytes_ = 0;  ///< Of the launcher's lines.
};

}  // namespace

const JobRank* find_rank(const Job& job, int64_t rank) {
  const auto found = std::ranges::find_if(job.ranks, [&](const auto& one) { return one.rank == rank; });
  return found == job.ranks.end() ? nullptr : &*found;
}

std::vector<std::string> missing_logs(const Job& job, const JobLogOptions& options) {
  std::vector<std::string> result;
  for (const auto& rank : job.ranks) {
    if (!is_wanted(rank, options)) continue;
    for (const auto which : {LineStream::kOut, LineStream::kErr}) {
      if (!stream_of(rank, which).is_own) continue;
      result.push_back(
          fmt::format("rank {} writes its standard {} straight to {}, so there is no copy to show; `--tee 3` of "
                      "`yoke run` would keep one",
                      rank.rank, which == LineStream::kOut ? "output" : "error", target_of(rank, which)));
    }
    const auto is_hidden = [](const StreamPlan& stream) {
      return stream.to == StreamPlan::To::kNowhere && stream.file.empty();
    };
    if (!options.rank || !is_hidden(rank.out) || !is_hidden(rank.err)) continue;
    result.push_back(
        rank.host == job.host
            ? fmt::format("what rank {} prints is not shown (--local-ranks-filter), and not kept", rank.rank)
            : fmt::format("rank {} runs on {}, and `yoke logs` shows what it prints there", rank.rank,
                          printable(rank.host)));
  }
  return result;
}

bool read_logs(Job job, JobConnection connection, const JobLogOptions& options) {
  return LogReader(std::move(job), std::move(connection), options).run();
}

}  // namespace yoke::launch
