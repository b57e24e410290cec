#include "yoke/tui/canvas.h"

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/base/utf8.h"

namespace yoke::tui {
Canvas::Canvas(Size size)
    : size_{std::max<int64_t>(0, size.width), std::max<int64_t>(0, size.height)},
      cells_(static_cast<size_t>(size_.width * size_.height)) {}

Cell& Canvas::at(Point at) { return cells_[static_cast<size_t>(at.y * size_.width + at.x)]; }

const Cell& Canvas::cell(Point at) const { return cells_[static_cast<size_t>(at.y * size_.width + at.x)]; }

/// Clears the other half of a double-width character, because a half cannot be shown alone.
void Canvas::clear_pair(Point point) {
  if (!contains(point)) return;
  if (at(point).text.empty() && point.x > 0) at({point.x - 1, point.y}).text = " ";
  if (contains({point.x + 1, point.y}) && at({point.x + 1, point.y}).text.empty()) {
    at({point.x + 1, point.y}).text = " ";
  }
}

void Canvas::set(Point point, std::string_view character, int64_t width, Style style) {
  if (width == 2 && !contains({point.x + 1, point.y})) {  // the right half would be outside
    character = " ";
    width = 1;
  }
  if (!contains(point)) return;
  clear_pair(point);
  at(point) = {std::string(character), style};
  if (width == 2) {
    clear_pair({point.x + 1, point.y});
    at({point.x + 1, point.y}) = {"", style};
  }
}

int64_t Canvas::put(Point point, std::string_view text, Style style) {
  const auto safe = printable(text);
  int64_t x = point.x, last = -1;
  for (std::string_view rest = safe; !rest.empty();) {
    const auto character = rest.substr(0, std::max<size_t>(1, first_character(rest).length));
    rest.remove_prefix(character.size());
    const auto width = character.size() == 1 ? 1 : display_width(character);
    if (width == 0) {
      constexpr size_t kMarks = 16;  // bytes of a cell; a name may have a thousand marks on one letter
      if (last >= 0 && contains({last, point.y}) && at({last, point.y}).text.size() < kMarks) {
        at({last, point.y}).text += character;
      }
      continue;
    }
    set({x, point.y}, character, width, style);
    last = x;
    x += width;
  }
  return x;
}

void Canvas::restyle(const Rect& where, Style style) {
  for (int64_t y = where.y; y < where.y + where.height; ++y) {
    for (int64_t x = where.x; x < where.x + where.width; ++x) {
      if (contains({x, y})) at({x, y}).style = style;
    }
  }
}

void Canvas::make_ascii() {
  for (auto& cell : cells_) {
    if (cell.text.size() == 1 && static_cast<unsigned char>(cell.text[0]) < 0x80) continue;
    cell.text = cell.text == "…" ? "~" : cell.text == "·" ? "-" : "?";
  }
}

std::string Canvas::to_text() const {
  std::string text;
  for (int64_t y = 0; y < size_.height; ++y) {
    std::string line;
    for (int64_t x = 0; x < size_.width; ++x) line += cell({x, y}).text;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace yoke::tui
