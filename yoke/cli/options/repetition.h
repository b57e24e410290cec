// yoke/cli/options/repetition.h -- the option `--watch [SECONDS]`, which repeats a command's output.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "yoke/base/json_text.h"
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
  std::string text;   ///< The output that the command prints without --watch.
  std::string notes;  ///< Lines for standard error. On a terminal they follow the text.
};

enum class PictureKind {
  kText,     ///< For people: a terminal shows only the latest text, with changes in reverse video.
  kDrawing,  ///< As kText, but without reverse video, because the text has its own colours.
  kRecords,  ///< For programs: prints the texts one after the other.
};

/// Calls `take` every interval and prints its result, until the reader closes the output or a signal ends the process.
/// Without --watch it calls `take` once. `take` gets the number of calls before. Errors  those of `take`.
void repeat(const Repetition& repetition, PictureKind kind, Context& context,
            const std::function<Picture(int64_t number)>& take);

/// Returns a picture as JSON. With --watch it is one line.
template <class Json>
std::string json_record(const Json& json, const Repetition& repetition) {
  return repetition.is_wanted() ? json_line(json) + '\n' : json_page(json);
}

/// Returns a picture as CSV. With --watch only the first has column titles, and `time_seconds` is the first column.
std::string to_csv(Table table, const Repetition& repetition, std::chrono::system_clock::time_point time,
                   int64_t number);

/// Returns `line` with reverse video around the characters that differ from `before`.
std::string highlight_changes(const std::string& line, const std::string& before);

/// Returns the first lines of `text` that fit into `num_rows` rows. If lines are left out, the last row says how many
/// and gives `advice`. Returns all of `text` if `num_rows` is 0, which means that the height is not known.
std::string first_lines(const std::string& text, size_t num_rows, std::string_view advice = "`yoke top` scrolls");

}  // namespace yoke::cli
