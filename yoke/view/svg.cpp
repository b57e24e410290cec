#include "yoke/view/svg.h"

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

}  // namespace yoke::view
