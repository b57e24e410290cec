// Draws the process list.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/device/uses.h"
#include "yoke/tui/processes.h"
#include "yoke/tui/view.h"
#include "yoke/view/labels.h"

namespace yoke::tui {
namespace {

/// Returns `text` without its first `columns` columns. REQUIRES: `text` is printable.
std::string_view skip(std::string_view text, int64_t columns) {
  size_t start = 0;
  while (start < text.size() && columns > 0) {
    size_t end = start + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    columns -= display_width(text.substr(start, end - start));
    start = end;
  }
  return text.substr(start);
}

std::string text_of(const ProcessRow& row, ProcessField field) {
  const auto or_unknown = [](const auto& value, const auto& format) {
    return value ? format(*value) : std::string(view::kUnknown);
  };
  switch (field) {
    case ProcessField::kPid: return fmt::format("{}", row.key.pid);
    case ProcessField::kUser: return row.user.empty() ? "?" : row.user;
    case ProcessField::kDevice: return row.device;
    case ProcessField::kMemory:
      if (row.device.empty()) return "";
      return or_unknown(row.memory_bytes, [](int64_t bytes) { return format_bytes(bytes); });
    case ProcessField::kUtilization:
      if (row.device.empty()) return "";
      return view::percent_text(row.utilization_percent);
    case ProcessField::kAge: return or_unknown(row.age, [](auto age) { return format_duration(age); });
    case ProcessField::kOrigin: return row.origin;
    case ProcessField::kCommand: return row.branch + printable(row.command);
  }
  return "";
}

/// Explains why the process list is empty.
std::string nobody_text(const Model& model, const ProcessList& list) {
  if (!model.sample->has_processes) return "reading the processes...";
  if (list.num_processes > 0) return "no process matches the filter; Esc takes it away";
  std::vector<std::string> silent;
  for (const auto& one : device::unanswered_of(model.sample->snapshot)) silent.push_back(one.what());
  if (silent.empty()) return "no process uses a device";
  return fmt::format("no process is known; not known who uses {}", fmt::join(silent, ", "));
}

void draw_heading(Canvas& canvas, const Model& model, const Layout& layout) {
  const auto y = *layout.process_heading;
  canvas.put({0, y}, std::string(static_cast<size_t>(std::max<int64_t>(0, model.size.width)), ' '), Style::kHeading);
  for (const auto& column : layout.columns) {
    const bool is_chosen = column.sort_by == model.sort_by && !model.is_plain;
    std::string title = column.title;
    if (is_chosen && model.glyphs == Glyphs::kAscii) title += model.is_reversed ? "^" : "v";
    if (is_chosen && model.glyphs == Glyphs::kUnicode) title += model.is_reversed ? "▴" : "▾";
    canvas.put({column.x, y}, pad(title, column.width, column.align),
               is_chosen ? Style::kChosenHeading : Style::kHeading);
  }
}

void draw_row(Canvas& canvas, const Model& model, const Layout& layout, const ProcessRow& row, int64_t y) {
  for (const auto& column : layout.columns) {
    auto text = printable(text_of(row, column.field));
    if (column.field == ProcessField::kCommand) text = skip(text, model.command_offset);
    const auto style = row.device.empty() || !row.is_visible                ? Style::kDim
                       : column.field == ProcessField::kUser && row.is_mine ? Style::kStrong
                                                                            : Style::kNormal;
    canvas.put({column.x, y}, pad(text, column.width, column.align), style);
  }
}

}  // namespace

void draw_processes(Canvas& canvas, const Model& model, const Layout& layout) {
  if (!layout.process_heading) return;
  draw_heading(canvas, model, layout);
  const auto list = process_list(model);
  const auto area = layout.processes;
  if (list.rows.empty() && model.sample && area.height > 0) {
    canvas.put({1, area.y}, fit(nobody_text(model, list), model.size.width - 1), Style::kDim);
  }
  const auto selected = selected_row(model, list.rows);
  for (int64_t i = 0; i < area.height; ++i) {
    const auto number = model.first_row + i;
    if (number >= static_cast<int64_t>(list.rows.size())) break;
    draw_row(canvas, model, layout, list.rows[static_cast<size_t>(number)], area.y + i);
    if (selected == number) canvas.restyle({0, area.y + i, model.size.width, 1}, Style::kSelected);
  }
}

}  // namespace yoke::tui
