// yoke/train/checkpoint/text_value.h -- converts numbers, flags and texts to a checkpoint's metadata and back without
// loss.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <system_error>
#include <type_traits>

namespace yoke::train {

std::string text_of(bool value);    ///< "yes" or "no".
std::string text_of(double value);  ///< The shortest text that reads back as this number.
inline std::string text_of(const std::string& value) { return value; }
template <std::integral Integer>
std::string text_of(Integer value) {
  return std::to_string(value);
}

/// Throws kDataLoss; the message contains `name`.
[[noreturn]] void refuse_text(const std::string& name, const std::string& text);

/// Parses `text`. Errors: kDataLoss if `text` is not such a value; the message contains `name`.
void read_text(const std::string& name, const std::string& text, bool& value);
inline void read_text(const std::string&, const std::string& text, std::string& value) { value = text; }
template <class Number>
requires std::is_arithmetic_v<Number>
void read_text(const std::string& name, const std::string& text, Number& value) {
  const auto* end = text.data() + text.size();
  Number read{};
  const auto [rest, error] = std::from_chars(text.data(), end, read);
  if (error != std::errc() || rest != end) refuse_text(name, text);
  value = read;
}

}  // namespace yoke::train
