// A chart as SVG and as PNG. Both have the same layout, which is drawn in two ways.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/png.h"
#include "yoke/base/text.h"
#include "yoke/view/chart_parts.h"
#include "yoke/view/font.h"
#include "yoke/view/svg.h"

namespace yoke::view {
namespace {

constexpr double kEdge = 16, kTitleHeight = 20, kLegendHeight = 16, kLabelsHeight = 34, kSampleWidth = 20;

constexpr SvgStyle kChartStyle{.light = R"(.l{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}
.l0{stroke:#0969da}.l1{stroke:#9a6700}.l2{stroke:#1a7f37}.l3{stroke:#8250df}.l4{stroke:#cf222e}.l5{stroke:#1b7c83}
.again{stroke-dasharray:5 3})",
                               .dark = R"(
.l0{stroke:#4493f8}.l1{stroke:#d29922}.l2{stroke:#3fb950}.l3{stroke:#ab7df8}.l4{stroke:#f85149}.l5{stroke:#39c5cf})"};

using Rgb = std::array<uint8_t, 3>;
constexpr Rgb kInk = {0x1f, 0x23, 0x28}, kMuted = {0x59, 0x63, 0x6e}, kGrid = {0xd1, 0xd9, 0xe0};
constexpr Rgb kLineColors[kNumChartColors] = {{0x09, 0x69, 0xda}, {0x9a, 0x67, 0x00}, {0x1a, 0x7f, 0x37},
                                              {0x82, 0x50, 0xdf}, {0xcf, 0x22, 0x2e}, {0x1b, 0x7c, 0x83}};

struct PictureText {
  double x, y;             ///< y is the base line; x is the beginning, middle or end of the text.
  std::string_view style;  ///< Classes of view/svg.h.
  std::string text;
  double room;  ///< The width that the text may take.
};
struct GridLine {
  double x1, y1, x2, y2;
};
struct PictureLine {
  size_t number;
  std::vector<std::vector<ChartPoint>> parts;  ///< In pixels; y counts from the top.
};
struct ChartPicture {
  double width = 0, height = 0;
  std::vector<GridLine> grid;
  std::vector<PictureLine> lines;
  std::vector<PictureText> texts;
};

/// Adds a panel below `top`, and returns its lower end.
double add_panel(ChartPicture& picture, const Chart& chart, const ChartPanel& panel, double plot_height, double top) {
  const double right = picture.width - kEdge;
  picture.texts.push_back({kEdge, top + 14, "b", panel.title, picture.width - 2 * kEdge});
  top += kTitleHeight;
  for (size_t i = 0; i < panel.lines.size(); ++i) {
    const double y = top + 10;
    picture.lines.push_back({i, {{{kEdge, y - 4}, {kEdge + kSampleWidth, y - 4}}}});
    const auto summary = summary_of(chart, panel.lines[i]);
    const double summary_width = static_cast<double>(summary.size() + 2) * kSvgLetter;
    const double room = right - kEdge - kSampleWidth - 8;
    picture.texts.push_back(
        {kEdge + kSampleWidth + 8, y, "", panel.lines[i].name, std::max(60.0, room - summary_width)});
    picture.texts.push_back({right, y, "m r", summary, std::max(0.0, room - 60)});
    top += kLegendHeight;
  }
  top += 8;
  auto plot = plot_of(chart, panel, static_cast<int64_t>(picture.width));
  if (!plot) return top + 8;
  const double bottom = top + plot_height;
  const auto y_ticks = plot->y.ticks(std::max<int64_t>(1, static_cast<int64_t>(plot_height / 48)));
  size_t longest = 0;
  for (const auto& tick : y_ticks) longest = std::max(longest, tick.label.size());
  const double left = kEdge + static_cast<double>(longest) * kSvgLetter + 6, width = right - left;
  for (const auto& tick : y_ticks) {
    const double y = bottom - plot->y.fraction(tick.value) * plot_height;
    picture.grid.push_back({left, y, right, y});
    picture.texts.push_back({left - 6, y + 4, "m r", tick.label, left});
  }
  const auto x_ticks = plot->x.ticks(std::max<int64_t>(2, static_cast<int64_t>(width / 90)));
  double free_from = 0;
  for (const auto& tick : x_ticks) {
    const double half = static_cast<double>(tick.label.size()) * kSvgLetter / 2;
    const double x = left + plot->x.fraction(tick.value) * width;
    picture.grid.push_back({x, bottom, x, bottom + 4});
    const double middle = std::min(x, picture.width - 4 - half);
    if (middle - half < free_from) continue;
    picture.texts.push_back({middle, bottom + 16, "m c", tick.label, 2 * half});
    free_from = middle + half + 8;
  }
  picture.grid.push_back({left, bottom, right, bottom});
  picture.texts.push_back({(left + right) / 2, bottom + 30, "m c", panel.x_title, width});
  for (size_t line = 0; line < plot->lines.size(); ++line) {
    for (auto& part : plot->lines[line]) {
      for (auto& point : part) point = {left + point.x * width, bottom - point.y * plot_height};
    }
    picture.lines.push_back({line, std::move(plot->lines[line])});
  }
  return bottom + kLabelsHeight;
}

ChartPicture picture_of(const Chart& chart, const ChartSize& size) {
  ChartPicture picture{.width = size.width, .height = kEdge};
  for (const auto& panel : chart.panels) {
    picture.height = add_panel(picture, chart, panel, size.height, picture.height) + kEdge;
  }
  return picture;
}

std::string path_data(const std::vector<std::vector<ChartPoint>>& parts) {
  std::string data;
  for (const auto& part : parts) {
    for (size_t i = 0; i < part.size(); ++i) {
      fmt::format_to(std::back_inserter(data), "{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', part[i].x, part[i].y);
    }
    if (part.size() == 1) data += "h0";  // a dot
  }
  return data;
}

/// An image with two pixels per unit of length.
class Raster {
 public:
  Raster(double width, double height)
      : width_(std::llround(2 * width)),
        height_(std::llround(2 * height)),
        pixels_(static_cast<size_t>(width_ * height_ * 3), 255) {}

  void draw_line(ChartPoint from, ChartPoint to, const Rgb& color, int64_t thickness, int64_t* dash = nullptr) {
    trace(2 * from.x, 2 * from.y, 2 * to.x, 2 * to.y, [&](int64_t x, int64_t y) {
      if (dash != nullptr && (*dash)++ % 16 >= 10) return;
      for (int64_t i = 0; i < thickness * thickness; ++i) set(x - i % thickness, y - i / thickness, color);
    });
  }

  void draw_text(const PictureText& item) {
    constexpr int64_t kScale = 2, kAdvance = (kGlyphWidth + 1) * kScale, kRows = 7;
    std::string letters;
    for (const char c : printable(item.text)) {
      if ((static_cast<uint8_t>(c) & 0xc0) != 0x80) letters += c;  // one glyph for each character
    }
    const auto room = static_cast<size_t>(std::max(0.0, item.room / kSvgLetter));
    if (letters.size() > room) letters = letters.substr(0, room < 2 ? 0 : room - 2) + (room < 2 ? "" : "..");
    const auto length = std::ssize(letters) * kAdvance;
    const auto shift = item.style.ends_with('r') ? length : item.style.ends_with('c') ? length / 2 : 0;
    const auto left = std::llround(2 * item.x) - shift, top = std::llround(2 * item.y) - kRows * kScale;
    const auto& color = item.style.starts_with('m') ? kMuted : kInk;
    const bool is_bold = item.style.starts_with('b');
    for (size_t i = 0; i < letters.size(); ++i) {
      for (int64_t y = 0; y < kGlyphHeight * kScale; ++y) {
        for (int64_t x = 0; x < kGlyphWidth * kScale; ++x) {
          if (!glyph_covers(letters[i], x / kScale, y / kScale)) continue;
          for (int64_t k = 0; k <= (is_bold ? 1 : 0); ++k) {
            set(left + static_cast<int64_t>(i) * kAdvance + x + k, top + y, color);
          }
        }
      }
    }
  }

  std::string png() const { return encode_png(pixels_, height_, width_, 3); }

 private:
  void set(int64_t x, int64_t y, const Rgb& color) {
    if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
    std::ranges::copy(color, pixels_.begin() + (y * width_ + x) * 3);
  }

  int64_t width_, height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace

std::string chart_svg(const Chart& chart, const ChartSize& size) {
  const auto picture = picture_of(chart, size);
  auto svg = svg_page(picture.width, picture.height, kChartStyle);
  for (const auto& line : picture.grid) svg += svg_line("grid", line.x1, line.y1, line.x2, line.y2);
  for (const auto& line : picture.lines) {
    svg += fmt::format("<path class=\"l l{}{}\" d=\"{}\"/>\n", line.number % kNumChartColors,
                       line.number < kNumChartColors ? "" : " again", path_data(line.parts));
  }
  for (const auto& item : picture.texts) {
    svg += svg_text(item.x, item.y, item.style, svg_fit(item.text, item.room + 1));
  }
  return svg + "</svg>\n";
}

std::string chart_png(const Chart& chart, const ChartSize& size) {
  const auto picture = picture_of(chart, size);
  constexpr double kMaxSide = 16'384;
  if (picture.width > kMaxSide || picture.height > kMaxSide) {
    throw Error(ErrorCode::kInvalidArgument, "a PNG of {:.0f} by {:.0f} pixels is too large; draw fewer metrics",
                2 * picture.width, 2 * picture.height);
  }
  Raster raster(picture.width, picture.height);
  for (const auto& line : picture.grid) raster.draw_line({line.x1, line.y1}, {line.x2, line.y2}, kGrid, 1);
  for (const auto& line : picture.lines) {
    int64_t dash = 0;
    const bool is_dashed = line.number >= kNumChartColors;
    for (const auto& part : line.parts) {
      for (size_t i = 0; i < part.size(); ++i) {
        raster.draw_line(part[i == 0 ? 0 : i - 1], part[i], kLineColors[line.number % kNumChartColors], 2,
                         is_dashed ? &dash : nullptr);
      }
    }
  }
  for (const auto& item : picture.texts) raster.draw_text(item);
  return raster.png();
}

}  // namespace yoke::view
