#include "yoke/train/format/detail/utf8.h"

#include <cstddef>
#include <cstdint>

namespace yoke::train {

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto first = static_cast<uint8_t>(bytes[i++]);
    if (first < 0x80) continue;
    const size_t num_more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || bytes.size() - i < num_more) return false;
    uint32_t code = first & (0x3Fu >> num_more);
    for (size_t more = 0; more < num_more; ++more) {
      const auto byte = static_cast<uint8_t>(bytes[i++]);
      if ((byte & 0xC0) != 0x80) return false;
      code = code << 6 | (byte & 0x3Fu);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[num_more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  }
  return true;
}

}  // namespace yoke::train
