// yoke/models/text/characters.h -- how tokenizers of GPT-2 and BERT treat each Unicode character. Internal.
//
// The tables are what Hugging Face's package tokenizers does with each character (record_characters.py), because models
// are trained with it; it combines several versions of Unicode.
#pragma once

#include <string>

namespace yoke::models {

/// The classes of GPT-2's pattern: \p{L}, \p{N}, \s, and the rest.
enum class CharacterClass { kLetter, kNumber, kSpace, kOther };
CharacterClass class_of(char32_t code);

// BERT's normalisation.
bool is_bert_space(char32_t code);        ///< Becomes a space.
bool is_bert_dropped(char32_t code);      ///< Control characters, and accents and other marks after their letter.
bool is_bert_control(char32_t code);      ///< Those of them that a model with upper case drops, too.
bool is_bert_ideograph(char32_t code);    ///< A word of its own, as of Chinese, which is written without spaces.
bool is_bert_punctuation(char32_t code);  ///< A word of its own.

/// Appends the character without its accents and in lower case; "à" gives "a". REQUIRES: it is neither a space nor
/// dropped.
void append_bert_form(char32_t code, std::u32string& to);

}  // namespace yoke::models
