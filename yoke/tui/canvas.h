// yoke/tui/canvas.h -- a page of character cells, as a value: what a view returns and a terminal shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::tui {

/// What a cell means; the terminal decides how that looks, without colours too.
enum class Style : uint8_t {
  kNormal,
  kDim,     ///< Labels, and what is not the point.
  kStrong,  ///< Names, one's own processes.
  kTitle,
  kUtilization,
  kMemory,
  kGood,
  kWarning,
  kBad,
  kHeading,
  kChosenHeading,  ///< Of the column that the list is sorted by.
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
  std::string text = " ";  ///< One character with its combining marks; empty: the right half of the one before.
  Style style = Style::kNormal;
};

class Canvas {
 public:
  explicit Canvas(Size size);

  Size size() const { return size_; }

  /// REQUIRES: `at` is inside.
  const Cell& cell(Point at) const;

  /// Writes `text`, made printable, to the right of `at`; what is outside is left out. Returns the column after it.
  int64_t put(Point at, std::string_view text, Style style = Style::kNormal);

  /// Gives what is there another style.
  void restyle(const Rect& where, Style style);

  /// For terminals that show ASCII only: "…" and "·" become similar characters, all others '?'.
  void make_ascii();

  /// Lines without trailing spaces.
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
