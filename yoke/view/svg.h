// yoke/view/svg.h -- functions for all drawings. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::view {

/// `text` made printable, cut to `columns` characters and quoted for XML.
std::string xml_text(std::string_view text, int64_t columns);

}  // namespace yoke::view
