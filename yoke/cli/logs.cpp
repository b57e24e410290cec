// `yoke logs`: print the last output of a job's ranks, and follow new output.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/output/line_assembler.h"
#include "yoke/launch/output/screen.h"

namespace yoke::cli {
namespace {

using launch::JobRank;
using launch::JobTime;
using launch::LineStream;
using launch::RecentLines;
using launch::StreamPlan;
using std::chrono::milliseconds;

constexpr milliseconds kLookAtFilesEvery{100};
constexpr std::chrono::seconds kLookAtJobEvery{1};

struct LogsArgs {
  std::string job;
  bool follow = false;
  std::optional<int64_t> rank;
  std::optional<int64_t> num_lines;
  ColorMode color = ColorMode::kAuto;
};

const JobRank* find_rank(const launch::Job& job, int64_t rank) {
  const auto found = std::ranges::find_if(job.ranks, [&](const auto& one) { return one.rank == rank; });
  return found == job.ranks.end() ? nullptr : &*found;
}

/// Removes the escape sequences for colours. REQUIRES: `text` is a result of printable_with_colours(), and so contains
/// no other escape sequences.
std::string without_colors(std::string text) {
  for (auto at = text.find('\x1b'); at != text.npos; at = text.find('\x1b', at)) {
    text.erase(at, text.find('m', at) + 1 - at);
  }
  return text;
}

/// Prints each line on the stream that its rank wrote it to. On a terminal, replaces control characters.
class Printer {
 public:
  Printer(ColorMode color, const Environment& environment)
      : out_(STDOUT_FILENO, color, environment), err_(STDERR_FILENO, color, environment) {}

  void print(const JobRank* rank, LineStream stream, std::string_view text) const {
    const bool is_error = stream == LineStream::kErr;
    auto& to = is_error ? std::cerr : std::cout;
    const auto& target = is_error ? err_ : out_;
    if (rank != nullptr) {
      const auto prefix = target.is_terminal ? printable(rank->prefix) : rank->prefix;
      to << (target.has_color ? launch::colored_prefix(rank->rank, prefix) : prefix);
    }
    if (target.is_terminal) {
      const auto colored = printable_with_colours(text);
      to << (target.has_color ? colored : without_colors(colored)) << '\n';
    } else {
      to << text << '\n';
    }
  }
  static void flush() {
    std::cout.flush();
    std::cerr.flush();
  }

 private:
  struct Target {
    Target(int fd, ColorMode color, const Environment& environment)
        : is_terminal(isatty(fd) == 1), has_color(wants_color(color, environment, is_terminal)) {}
    bool is_terminal, has_color;
  };
  const Target out_, err_;
};

/// Returns the offset of the last `count` lines of a file. An unfinished last line counts as a line.
off_t begin_of_last_lines(int fd, int64_t count) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (count == 0) return size;
  char buffer[1 << 16];
  for (off_t end = size; end > 0;) {
    const auto begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof buffer));
    const ssize_t num_read = pread(fd, buffer, static_cast<size_t>(end - begin), begin);
    for (ssize_t i = num_read - 1; i >= 0; --i) {
      const bool ends_another_line = buffer[i] == '\n' && begin + i + 1 < size;
      if (ends_another_line && --count == 0) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

/// A stream of a rank that is written only to a file.
class LogFile {
 public:
  /// Errors  as errno says, with the path; kDataLoss: it is not a regular file.
  LogFile(JobRank rank, LineStream stream)
      : rank_(std::move(rank)), stream_(stream), path_((stream == LineStream::kOut ? rank_.out : rank_.err).file) {
    fd_ = open_regular_file(path_);  // the job reported the path, but any file may be there now
  }

  void skip_all_but_last(int64_t num_lines) {
    lseek(fd_.value(), begin_of_last_lines(fd_.value(), num_lines), SEEK_SET);
  }

  void print_new(const Printer& printer) {
    char buffer[1 << 16];
    std::string lines;
    for (ssize_t count; (count = read(fd_.value(), buffer, sizeof buffer)) > 0; lines.clear()) {
      assembler_.feed({buffer, static_cast<size_t>(count)}, lines);
      print(lines, printer);
    }
  }
  void finish(const Printer& printer) {
    print_new(printer);
    std::string lines;
    assembler_.finish(lines);
    print(lines, printer);
  }

 private:
  void print(std::string_view lines, const Printer& printer) const {
    for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
      printer.print(&rank_, stream_, lines.substr(0, end));
      lines.remove_prefix(end + 1);
    }
  }

  JobRank rank_;
  LineStream stream_;
  std::string path_;
  UniqueFd fd_;
  launch::LineAssembler assembler_{""};
};

bool is_wanted(const JobRank& rank, const LogsArgs& args) { return !args.rank || rank.rank == *args.rank; }

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

/// Reports the streams that this command cannot show, because neither the launcher nor a file keeps them.
void tell_what_is_missing(const launch::Job& job, const LogsArgs& args) {
  for (const auto& rank : job.ranks) {
    if (!is_wanted(rank, args)) continue;
    for (const auto which : {LineStream::kOut, LineStream::kErr}) {
      if (!stream_of(rank, which).is_own) continue;
      std::cerr << fmt::format(
          "yoke logs: rank {} writes its standard {} straight to {}, so there is no copy to show; `--tee 3` of "
          "`yoke run` would keep one\n",
          rank.rank, which == LineStream::kOut ? "output" : "error", target_of(rank, which));
    }
    const auto is_hidden = [](const StreamPlan& stream) {
      return stream.to == StreamPlan::To::kNowhere && stream.file.empty();
    };
    if (!args.rank || !is_hidden(rank.out) || !is_hidden(rank.err)) continue;
    std::cerr << (rank.host == job.host
                      ? fmt::format(
                            "yoke logs: what rank {} prints is not shown (--local-ranks-filter), and not kept\n",
                            rank.rank)
                      : fmt::format("yoke logs: rank {} runs on {}, and `yoke logs` shows what it prints there\n",
                                    rank.rank, printable(rank.host)));
  }
}

/// Opens the log files of the wanted ranks. If one cannot be opened, reports that and sets `lacks_some`.
std::vector<LogFile> open_files(const launch::Job& job, const LogsArgs& args, bool& lacks_some) {
  std::vector<LogFile> files;
  for (const auto& rank : job.ranks) {
    for (const auto which : {LineStream::kOut, LineStream::kErr}) {
      const auto& stream = stream_of(rank, which);
      if (!is_wanted(rank, args) || stream.to != StreamPlan::To::kNowhere || stream.file.empty()) continue;
      if (rank.host != job.host) {
        std::cerr << fmt::format("yoke logs: the log of rank {} is {} on {}\n", rank.rank, printable(stream.file),
                                 printable(rank.host));
        continue;
      }
      try {
        files.emplace_back(rank, which);
      } catch (const Error& error) {
        std::cerr << "yoke logs: " << printable(error.what()) << '\n';
        lacks_some = true;
      }
    }
  }
  return files;
}

/// Prints the existing lines. With --follow, also prints new lines until the job ends.
class LogReader {
 public:
  LogReader(OpenJob open, const LogsArgs& args, Printer printer)
      : job_(std::move(open.job)),
        connection_(std::move(open.connection)),
        args_(args),
        printer_(printer),
        files_(open_files(job_, args, lacks_files_)) {
    if (!args_.num_lines) return;
    for (auto& file : files_) file.skip_all_but_last(*args_.num_lines);
  }

  bool lacks_files() const { return lacks_files_; }

  /// Returns whether everything was read.
  bool run() {
    connection_.ask_logs(args_.follow, args_.num_lines, args_.rank);
    auto look_at_job = Clock::now() + kLookAtJobEvery;
    while (!connection_.is_over() && !connection_.is_closed()) {
      if (!std::cout) return true;  // main() reports the error
      const auto now = Clock::now();
      print_lines(now + (files_.empty() ? milliseconds(kLookAtJobEvery) : kLookAtFilesEvery));
      for (auto& file : files_) file.print_new(printer_);
      Printer::flush();
      if (Clock::now() >= look_at_job) {
        look_at_new_attempt();
        look_at_job = Clock::now() + kLookAtJobEvery;
      }
    }
    for (auto& file : files_) file.finish(printer_);
    Printer::flush();
    if (connection_.is_over()) return true;
    std::cerr << fmt::format(
        "yoke logs: job {} hung up: it was killed, or did not wait for its last lines to be read here\n", job_.pid);
    return false;
  }

 private:
  void print_lines(JobTime until) {
    while (const auto line = connection_.read_line(until)) {
      if (line->num_gone > 0) {
        std::cerr << fmt::format(
            "yoke logs: earlier lines are gone, {} of all ranks: the launcher keeps the last MiB\n", line->num_gone);
      }
      if (line->num_missed > 0) {
        std::cerr << fmt::format("yoke logs: {} lines were printed faster than they could be shown here\n",
                                 line->num_missed);
      }
      if (args_.rank && line->rank != *args_.rank) continue;
      printer_.print(find_rank(job_, line->rank), line->stream, line->text);
      until = JobTime::min();  // do not wait for further lines
    }
  }

  /// Opens the files of the new attempt after a restart, because their names differ.
  void look_at_new_attempt() {
    auto connection = launch::JobConnection::open(connection_.address(), Clock::now());
    if (!connection) return;
    connection->ask_job();
    auto job = connection->read_job(Clock::now() + kLookAtJobEvery);
    if (!job || job->num_restarts == job_.num_restarts) return;
    for (auto& file : files_) file.finish(printer_);
    job_ = std::move(*job);
    files_ = open_files(job_, args_, lacks_files_);
  }

  launch::Job job_;
  launch::JobConnection connection_;
  const LogsArgs& args_;
  Printer printer_;
  bool lacks_files_ = false;
  std::vector<LogFile> files_;
};

int run_logs(const LogsArgs& args, const Context& context) {
  auto open = open_job(args.job);
  if (args.rank && find_rank(open.job, *args.rank) == nullptr) {
    std::vector<int64_t> ranks;
    for (const auto& rank : open.job.ranks) ranks.push_back(rank.rank);
    throw Error(ErrorCode::kNotFound, "job {} has no rank {}{}", open.job.pid, *args.rank,
                ranks.empty() ? std::string("; none has started")
                              : fmt::format("; its ranks are {} to {}", ranks.front(), ranks.back()));
  }
  tell_what_is_missing(open.job, args);
  LogReader reader(std::move(open), args, Printer(args.color, context.environment));
  return reader.run() && !reader.lacks_files() ? kExitOk : exit_status(ErrorCode::kUnavailable);
}

}  // namespace

void add_logs(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<LogsArgs>();  // CLI11 keeps references to *args; the callback owns it
  add_job_option(cmd, args->job);
  cmd.add_flag("-f,--follow", args->follow, "Go on with what they print, until the job ends");
  add_number(cmd, "-n,--lines", args->num_lines, {"N", 0, 1e9},
             "The last N lines alone, and of a stream in a file the last N of it");
  cmd.add_option("--rank", args->rank, "Of this rank alone")->type_name("RANK");
  add_color_option(cmd, args->color);
  cmd.footer(
      examples("  yoke logs 4121             the last lines of all ranks: 1 MiB, 32768 short lines\n"
               "  yoke logs 4121 -f          and all to come\n"
               "  yoke logs -n 20            of the only job, the last 20 lines\n"
               "  yoke logs -f --rank 3      of the only job, one rank\n"
               "\n"
               "Lines come on standard output or error, as the ranks wrote them. Streams that `yoke run` sends into\n"
               "files (--redirects) are read there, whole or their last lines. One rank alone writes straight to\n"
               "the terminal of `yoke run`: then there is nothing to show.\n"
               "\n"
               "Exit status: 0; 75 when a log could not be read, or the job hung up before its last lines were read."));
  cmd.callback([args, &context] { context.exit_code = run_logs(*args, context); });
}

}  // namespace yoke::cli
