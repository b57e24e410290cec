#include "yoke/view/svg.h"

#include <fmt/format.h>

#include "yoke/base/text.h"

namespace yoke::view {

std::string xml_text(std::string_view text, int64_t columns) {
  std::string result;
  for (const char c : fit(printable(text), columns)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string svg_fit(std::string_view text, double width) {
  return xml_text(text, static_cast<int64_t>(width / kSvgLetter));
}

std::string svg_style(const SvgStyle& style) {
  return fmt::format(R"(<style>
text{{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:11px;fill:#1f2328}}
.b{{font-size:13px;font-weight:600}}.m{{fill:#59636e}}.c{{text-anchor:middle}}.r{{text-anchor:end}}
.page{{fill:#fff;stroke:#d1d9e0}}.grid{{stroke:#d1d9e0}}{}
@media (prefers-color-scheme:dark){{
text{{fill:#f0f6fc}}.m{{fill:#9198a1}}.page{{fill:#0d1117;stroke:#3d444d}}.grid{{stroke:#3d444d}}{}}}
</style>
)",
                     style.light, style.dark);
}

std::string svg_page(double width, double height, const SvgStyle& style) {
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}">
{2}<rect class="page" x=".5" y=".5" width="{3}" height="{4}" rx="6"/>
)",
                     width, height, svg_style(style), width - 1, height - 1);
}

std::string svg_text(double x, double y, std::string_view style, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, style, content);
}

std::string svg_line(std::string_view style, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                     x2, y2);
}

}  // namespace yoke::view
