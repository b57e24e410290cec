// yoke/cli/options/repetition.h -- the option `--watch [SECONDS]`, which repeats a command's output.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "yoke/base/table.h"
#include "yoke/base/terminal.h"
#include "yoke/cli/command.h"

namespace CLI {
class Option;
}

namespace yoke::cli {

struct Repetition {
  double interval_s = 2;
  ColorMode color = ColorMode::kAuto;  ///< Whether changes are highlighted.
  CLI::Option* option = nullptr;

  bool is_wanted() const;  ///< Whether --watch was given.
};

/// Adds --watch [SECONDS], and --color for its highlights. `repetition` must outlive the parsing.
void add_watch_option(CLI::App& command, Repetition& repetition);

/// What is watched at one moment, as text.
struct Picture {
  std::chrono::system_clock::time_point time;
  std::string host;
  std::string text;   ///< The output of the command without --watch.
  std::string notes;  ///< Lines for standard error. On a terminal they stand below the text.
};

enum class PictureKind {
  kText,  ///< For people: on a terminal each picture replaces the one before, and changes are shown in reverse video.
  kDrawing,  ///< The same without reverse video, for text with colours of its own.
  kRecords,  ///< For programs: the texts follow each other with nothing between them.
};

/// Takes and prints a picture every interval, until the reader of the output goes away or a signal ends the process.
/// Without --watch it does so once. `take` gets the number of the picture, from 0.
/// Errors  those of `take`.
void repeat(const Repetition& repetition, PictureKind kind, Context& context,
            const std::function<Picture(int64_t number)>& take);

/// A picture as CSV. With --watch only the first picture has titles, and `time_seconds` is the first column.
std::string to_csv(Table table, const Repetition& repetition, std::chrono::system_clock::time_point time,
                   int64_t number);

/// `line` with reverse video around the characters that differ from `before`.
std::string highlight_changes(const std::string& line, const std::string& before);

/// The lines that fit into `num_rows` rows, and a line that says how many are left out, and `advice`. All of `text` if
/// `num_rows` is 0, which means that it is not known.
std::string first_lines(const std::string& text, size_t num_rows, std::string_view advice = "`yoke top` scrolls");

}  // namespace yoke::cli
