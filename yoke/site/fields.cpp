#include "yoke/site/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace yoke::site {

void check_fields(const Section& section, std::string_view key, std::initializer_list<std::string_view> known) {
  const auto text = section.text(key).value_or("");
  for (size_t at = 0; (at = text.find_first_of("{}", at)) != text.npos;) {
    const auto end = std::min(text.find('}', at), text.size() - 1);
    const auto field = std::string_view(text).substr(at, end + 1 - at);
    if (std::find(known.begin(), known.end(), field) == known.end()) {
      section.refuse(
          key, fmt::format("{} has {}, which is no field; it may have {}", key, field, fmt::join(known, " and ")));
    }
    at = end + 1;
  }
}

}  // namespace yoke::site
