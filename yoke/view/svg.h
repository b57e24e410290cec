// yoke/view/svg.h -- functions for all SVG drawings. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::view {

/// Returns `text` made printable, cut to `columns` characters and quoted for XML.
std::string xml_text(std::string_view text, int64_t columns);

inline constexpr double kSvgLetter = 6.4;  ///< Estimated width of a small letter. Real letters are hardly wider.

/// Like xml_text(), but cut to `width` pixels of the small type.
std::string svg_fit(std::string_view text, double width);

/// CSS of a drawing, added to the classes that all drawings have: for text `b` (bold), `m` (muted), `c` (centred) and
/// `r` (right-aligned); for shapes `page` and `grid`.
struct SvgStyle {
  const char* light;
  const char* dark;  ///< Used if the reader prefers dark pages.
};

/// Returns the element <style>.
std::string svg_style(const SvgStyle& style);

/// Returns the beginning of a drawing, with a page as its background. The caller must append "</svg>".
std::string svg_page(double width, double height, const SvgStyle& style);

/// REQUIRES: `content` is quoted for XML. `style` is a list of class names.
std::string svg_text(double x, double y, std::string_view style, const std::string& content);
std::string svg_line(std::string_view style, double x1, double y1, double x2, double y2);

}  // namespace yoke::view
