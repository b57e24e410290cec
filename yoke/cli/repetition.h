// yoke/cli/repetition.h -- `--watch [SECONDS]`: what a command prints, again and again.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "yoke/base/table.h"
#include "yoke/base/terminal.h"
#include "yoke/cli/command.h"

namespace CLI {
class Option;
}

namespace yoke::cli {

struct Repetition {
  double interval_s = 2;
  ColorMode color = ColorMode::kAuto;  ///< Of what changed.
  CLI::Option* option = nullptr;

  bool is_wanted() const;  ///< Whether --watch was given.
};

/// --watch [SECONDS], and --color, which is about it. `repetition` must outlive the parsing.
void add_watch_option(CLI::App& command, Repetition& repetition);

/// One state of what is watched, as text.
struct Picture {
  std::chrono::system_clock::time_point time;
  std::string host;
  std::string text;   ///< What the command prints without --watch.
  std::string notes;  ///< Lines for standard error; on a screen they stand below the text.
};

enum class PictureKind {
  kText,     ///< For people: on a terminal each picture replaces the one before, and what changed is shown in reverse.
  kRecords,  ///< For programs: texts follow each other with nothing between them.
};

/// Takes and prints a picture every interval, until the reader of the output goes away or a signal ends the process.
/// Without --watch it does so once. `take` is given the number of the picture, from 0.
/// Errors  whatever `take` throws.
void repeat(const Repetition& repetition, PictureKind kind, Context& context,
            const std::function<Picture(int64_t number)>& take);

/// A picture as CSV. With --watch the titles come with the first one alone, and a column `time_seconds` stands before
/// the others.
std::string to_csv(Table table, const Repetition& repetition, std::chrono::system_clock::time_point time,
                   int64_t number);

/// `line` with reverse video around what differs from `before`.
std::string highlight_changes(const std::string& line, const std::string& before);

/// What fits a terminal of `num_rows` rows (0: unknown, and all of it), with a line that says how much is left out.
std::string first_lines(const std::string& text, size_t num_rows);

}  // namespace yoke::cli
