#include "yoke/models/text/characters.h"

#include <algorithm>
#include <iterator>

#include "yoke/models/text/detail/character_tables.h"

namespace yoke::models {
namespace {

template <size_t n>
bool is_in(const Range (&ranges)[n], char32_t code) {
  const auto next = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                     [](char32_t value, const Range& range) { return value < range.first; });
  return next != std::begin(ranges) && code <= std::prev(next)->last;
}

}  // namespace

CharacterClass class_of(char32_t code) {
  if (is_in(kLetters, code)) return CharacterClass::kLetter;
  if (is_in(kNumbers, code)) return CharacterClass::kNumber;
  return is_in(kSpaces, code) ? CharacterClass::kSpace : CharacterClass::kOther;
}

bool is_bert_space(char32_t code) { return is_in(kBertSpaces, code); }
bool is_bert_dropped(char32_t code) { return is_in(kBertDropped, code); }
bool is_bert_control(char32_t code) { return is_in(kBertControls, code); }
bool is_bert_ideograph(char32_t code) { return is_in(kBertIdeographs, code); }
bool is_bert_punctuation(char32_t code) { return is_in(kBertPunctuation, code); }

void append_bert_form(char32_t code, std::u32string& to) {
  if (code >= 0xAC00 && code < 0xAC00 + 11172) {  // a Hangul syllable: its two or three letters, Unicode 3.12
    const char32_t i = code - 0xAC00;
    to += static_cast<char32_t>(0x1100 + i / 588);
    to += static_cast<char32_t>(0x1161 + i % 588 / 28);
    if (i % 28 != 0) to += static_cast<char32_t>(0x11A7 + i % 28);
    return;
  }
  const auto longer = std::lower_bound(std::begin(kBertLonger), std::end(kBertLonger), code,
                                       [](const Longer& entry, char32_t value) { return entry.from < value; });
  if (longer != std::end(kBertLonger) && longer->from == code) {
    for (const char32_t part : longer->to) {
      if (part != 0) to += part;
    }
    return;
  }
  const auto next = std::upper_bound(std::begin(kBertShifted), std::end(kBertShifted), code,
                                     [](char32_t value, const Shift& shift) { return value < shift.first; });
  if (next != std::begin(kBertShifted)) {
    const auto& shift = *std::prev(next);
    if (code <= shift.last && (code - shift.first) % static_cast<char32_t>(shift.step) == 0) {
      to += static_cast<char32_t>(static_cast<int32_t>(code) + shift.shift);
      return;
    }
  }
  to += code;
}

}  // namespace yoke::models
