// yoke/view/svg.h -- functions for all drawings. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::view {

/// `text` made printable, cut to `columns` characters and quoted for XML.
std::string xml_text(std::string_view text, int64_t columns);

inline constexpr double kSvgLetter = 6.4;  ///< Estimated width of a small letter; it is at most slightly too small.

/// `text` as xml_text, cut to `width` pixels of the small type.
std::string svg_fit(std::string_view text, double width);

/// CSS of a drawing. It is added to the classes that all drawings have: for text `b` (bold), `m` (muted), `c` (centred)
/// and `r` (right-aligned); for shapes `page` and `grid`.
struct SvgStyle {
  const char* light;
  const char* dark;  ///< Used if the reader prefers dark pages.
};

/// The beginning of a drawing with a page as its background. "</svg>" ends it.
std::string svg_page(double width, double height, const SvgStyle& style);

/// `content` must be quoted for XML. `style` is a list of class names.
std::string svg_text(double x, double y, std::string_view style, const std::string& content);
std::string svg_line(std::string_view style, double x1, double y1, double x2, double y2);

}  // namespace yoke::view
