#include "yoke/base/utf8.h"

namespace yoke {

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return {};
  char32_t code = byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = first_character(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string to_utf8(char32_t code) {
  if (code > 0x10FFFF) return "";
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  const int num_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  std::string text(1, static_cast<char>((0xFF00 >> (num_more + 1) & 0xFF) | code >> 6 * num_more));
  for (int i = num_more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> 6 * i & 0x3F));
  return text;
}

}  // namespace yoke
