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

/// The output at one moment.
struct Picture {
  std::chrono::system_clock::time_point time;
  std::string host;
  std::string text;   ///< The output of the command without --watch.
  std::string notes;  ///< Lines for standard error. On a terminal they stand below the text.
};

enum class PictureKind {
  kText,     ///< For people: a terminal shows only the last picture, with its changes in reverse video.
  kDrawing,  ///< As kText, but without reverse video, because the text has colours of its own.
  kRecords,  ///< For programs: the texts are printed one after the other, with nothing between them.
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

/// As many lines as fit into `num_rows` rows, the last of which says how many lines are left out, and gives `advice`.
/// If `num_rows` is 0, the height is not known, and the result is all of `text`.
std::string first_lines(const std::string& text, size_t num_rows, std::string_view advice = "`yoke top` scrolls");

}  // namespace yoke::cli
