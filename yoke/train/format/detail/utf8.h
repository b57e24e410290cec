// yoke/train/format/detail/utf8.h -- whether bytes are a text.
#pragma once

#include <string_view>

namespace yoke::train {

/// Well-formed UTF-8: shortest forms only, no surrogates, nothing over U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace yoke::train
