// yoke/tui/canvas.h -- a page of character cells as a value, which a view returns and the terminal shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::tui {

/// The meaning of a cell. The terminal decides how the style looks, with or without colours.
enum class Style : uint8_t {
  kNormal,
  kDim,     ///< Labels and other secondary text.
  kStrong,  ///< Names and the user's own processes.
  kTitle,
  kUtilization,
  kMemory,
  kGood,
  kWarning,
  kBad,
  kHeading,
  kChosenHeading,  ///< The heading of the column by which the list is sorted.
  kSelected,
  kKey,
};
inline constexpr int kNumStyles = static_cast<int>(Style::kKey) + 1;

struct Point {
  int64_t x = 0, y = 0;
};
struct Size {
  int64_t width = 0, height = 0;
  bool operator==(const Size&) const = default;
};
struct Rect {
  int64_t x = 0, y = 0, width = 0, height = 0;
  bool contains(Point point) const {
    return point.x >= x && point.x < x + width && point.y >= y && point.y < y + height;
  }
};

struct Cell {
  std::string text = " ";  ///< One character with its combining marks; empty in the right half of a wide character.
  Style style = Style::kNormal;
};

class Canvas {
 public:
  explicit Canvas(Size size);

  Size size() const { return size_; }

  /// REQUIRES: `at` is inside the page.
  const Cell& cell(Point at) const;

  /// Writes `text`, made printable, from `at` to the right. Drops text outside of the page. Returns the column after
  /// the text.
  int64_t put(Point at, std::string_view text, Style style = Style::kNormal);

  /// Changes only the style of the cells.
  void restyle(const Rect& where, Style style);

  /// Replaces characters for terminals that show only ASCII: "…" and "·" become similar characters, all others '?'.
  void make_ascii();

  /// Returns the lines without trailing spaces.
  std::string to_text() const;

 private:
  bool contains(Point at) const { return at.x >= 0 && at.y >= 0 && at.x < size_.width && at.y < size_.height; }
  Cell& at(Point at);
  void set(Point at, std::string_view character, int64_t width, Style style);
  void clear_pair(Point at);

  Size size_;
  std::vector<Cell> cells_;
};

}  // namespace yoke::tui
