// `yoke logs`: print the last output of a job's ranks, and follow new output.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/launch/job/log_reader.h"
#include "yoke/launch/output/screen.h"

namespace yoke::cli {
namespace {

using launch::JobRank;
using launch::LineStream;

struct LogsArgs {
  std::string job;
  bool follow = false;
  std::optional<int64_t> rank;
  std::optional<int64_t> num_lines;
  ColorMode color = ColorMode::kAuto;
};

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
  static bool flush() {
    std::cout.flush();
    std::cerr.flush();
    return std::cout.good();  // main() reports the error
  }

 private:
  struct Target {
    Target(int fd, ColorMode color, const Environment& environment)
        : is_terminal(isatty(fd) == 1), has_color(wants_color(color, environment, is_terminal)) {}
    bool is_terminal, has_color;
  };
  const Target out_, err_;
};

int run_logs(const LogsArgs& args, const Context& context) {
  auto open = launch::open_job(args.job);
  if (args.rank && find_rank(open.job, *args.rank) == nullptr) {
    std::vector<int64_t> ranks;
    for (const auto& rank : open.job.ranks) ranks.push_back(rank.rank);
    throw Error(ErrorCode::kNotFound, "job {} has no rank {}{}", open.job.pid, *args.rank,
                ranks.empty() ? std::string("; none has started")
                              : fmt::format("; its ranks are {} to {}", ranks.front(), ranks.back()));
  }
  const Printer printer(args.color, context.environment);
  const launch::JobLogOptions options{.follow = args.follow,
                                      .rank = args.rank,
                                      .num_lines = args.num_lines,
                                      .on_line = [&](const JobRank* rank, LineStream stream,
                                                     std::string_view text) { printer.print(rank, stream, text); },
                                      .tell = teller(context),
                                      .on_turn = Printer::flush};
  for (const auto& text : missing_logs(open.job, options)) options.tell(Told::kNews, text);
  const bool is_whole = read_logs(std::move(open.job), std::move(open.connection), options);
  return is_whole ? kExitOk : exit_status(ErrorCode::kUnavailable);
}

}  // namespace

void add_logs(CLI::App& cmd, Context& context) {
  auto& args = add_args<LogsArgs>(cmd, context, run_logs);
  add_job_option(cmd, args.job);
  cmd.add_flag("-f,--follow", args.follow, "Go on with what they print, until the job ends");
  add_number(cmd, "-n,--lines", args.num_lines, {"N", 0, 1e9},
             "The last N lines alone, and of a stream in a file the last N of it");
  add_value(cmd, "--rank", args.rank, "RANK", "Of this rank alone");
  add_color_option(cmd, args.color);
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
}

}  // namespace yoke::cli
