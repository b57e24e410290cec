// yoke/train/format/detail/utf8.h -- checks whether bytes are a text.
#pragma once

#include <string_view>

namespace yoke::train {

/// Returns whether `bytes` is well-formed UTF-8: only shortest forms, no surrogates, and nothing over U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace yoke::train
