// yoke/web/page_assets.h -- the style and the script of the page.
#pragma once

#include <string_view>

namespace yoke::web {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace yoke::web
