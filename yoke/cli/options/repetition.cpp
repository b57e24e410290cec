#include "yoke/cli/options/repetition.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <ctime>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/color.h"

namespace yoke::cli {
namespace {

/// Prints the output of a repeated command over its previous output. With `marks_changes` it highlights differences.
class Screen {
 public:
  Screen(std::ostream& out, bool marks_changes) : out_(out), marks_changes_(marks_changes) { out_ << "\x1b[2J"; }

  void paint(const std::string& text) {
    out_ << "\x1b[H";
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
      const auto number = lines.size();
      out_ << (marks_changes_ && number < before_.size() ? highlight_changes(line, before_[number]) : line)
           << "\x1b[K\n";
      lines.push_back(std::move(line));
    }
    out_ << "\x1b[J" << std::flush;
    before_ = std::move(lines);
  }

 private:
  std::ostream& out_;
  const bool marks_changes_;
  std::vector<std::string> before_;
};

std::string title_of(const Picture& picture, double interval_s) {
  const auto time = std::chrono::system_clock::to_time_t(picture.time);
  char clock[32] = {};
  std::tm local = {};
  std::strftime(clock, sizeof clock, "%F %T", localtime_r(&time, &local));
  return fmt::format("{}  {}, every {} s", clock, printable(picture.host), interval_s);
}

}  // namespace

bool Repetition::is_wanted() const { return option != nullptr && option->count() > 0; }

void add_watch_option(CLI::App& command, Repetition& repetition) {
  const auto take = [&repetition](const std::string& text) {
    if (!text.empty()) repetition.interval_s = std::stod(text);  // CLI11 would read an empty text as 0
  };
  repetition.option =
      command
          .add_option_function<std::string>("--watch", take, "Repeat, and show what changed; every 2 s unless given")
          ->type_name("SECONDS")
          ->check(in_range(0.05, 86'400, "seconds"))
          ->expected(0, 1);
  add_color_option(command, repetition.color);
}

void repeat(const Repetition& repetition, PictureKind kind, Context& context,
            const std::function<Picture(int64_t number)>& take) {
  const auto interval_s = repetition.interval_s;
  std::optional<Screen> screen;
  const bool is_repeated = repetition.is_wanted();
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  if (is_repeated && kind != PictureKind::kRecords && is_terminal && can_redraw(context.environment)) {
    const bool has_colors = wants_color(repetition.color, context.environment, is_terminal);
    screen.emplace(context.out, kind == PictureKind::kText && has_colors);
  }
  auto next = Clock::now();
  for (int64_t number = 0;; ++number) {
    const auto picture = take(number);
    if (screen) {
      const auto page = fmt::format("{}\n\n{}{}", title_of(picture, interval_s), picture.text, picture.notes);
      const auto num_rows = static_cast<size_t>(output_height());
      screen->paint(kind == PictureKind::kDrawing ? first_lines(page, num_rows, "--metric chooses")
                                                  : first_lines(page, num_rows));
    } else {
      context.out << picture.text << (is_repeated && kind != PictureKind::kRecords ? "\n" : "") << std::flush;
      if (number == 0) std::cerr << picture.notes << std::flush;  // with the first output only
    }
    if (!is_repeated || !context.out) return;  // the reader has closed the output
    const auto interval =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(interval_s));
    next = std::max(next + interval, Clock::now());
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    poll(nullptr, 0, static_cast<int>(std::max<int64_t>(1, pause.count())));
  }
}

std::string to_csv(Table table, const Repetition& repetition, std::chrono::system_clock::time_point time,
                   int64_t number) {
  if (!repetition.is_wanted()) return yoke::to_csv(table);
  const auto seconds = fmt::format("{:.3f}", std::chrono::duration<double>(time.time_since_epoch()).count());
  table.columns.insert(table.columns.begin(), Column{.title = "time_seconds"});
  for (auto& row : table.rows) row.insert(row.begin(), seconds);
  const auto text = yoke::to_csv(table);
  return number == 0 ? text : text.substr(text.find('\n') + 1);
}

std::string first_lines(const std::string& text, size_t num_rows, std::string_view advice) {
  const auto num_lines = static_cast<size_t>(std::ranges::count(text, '\n'));
  if (num_rows < 3 || num_lines < num_rows) return text;  // one row is left for the cursor
  const auto num_kept = num_rows - 2;
  size_t end = 0;
  for (size_t i = 0; i < num_kept; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end) + fmt::format("({} more lines; {})\n", num_lines - num_kept, advice);
}

std::string highlight_changes(const std::string& line, const std::string& before) {
  if (before.empty() || line == before) return line;
  // Compares characters instead of bytes, because an escape sequence must not divide a character. Compares equal
  // columns only, because new output rarely moves unchanged text to other columns.
  const auto next = [](const std::string& text, size_t i) {
    do {
      ++i;
    } while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80);
    return i;
  };
  std::string result;
  bool is_marked = false;
  size_t j = 0;
  for (size_t i = 0; i < line.size();) {
    const auto end = next(line, i);
    const auto other_end = j < before.size() ? next(before, j) : j;
    const auto character = line.substr(i, end - i);
    const bool differs = j >= before.size() ? character != " " : character != before.substr(j, other_end - j);
    if (differs != is_marked) result += differs ? "\x1b[7m" : "\x1b[27m";
    is_marked = differs;
    result += character;
    i = end;
    j = other_end;
  }
  return is_marked ? result + "\x1b[27m" : result;
}

}  // namespace yoke::cli
