#include "yoke/models/text/word_piece.h"

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/utf8.h"
#include "yoke/models/text/characters.h"
#include "yoke/models/text/detail/added_tokens.h"

namespace yoke::models {

std::vector<std::u32string> bert_words(std::string_view text, bool lower_case, bool divide_ideographs) {
  std::vector<std::u32string> words;
  std::u32string word, form;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  while (!text.empty()) {
    const auto [code, length] = first_character(text);
    text.remove_prefix(std::max<size_t>(length, 1));
    if (length == 0) continue;  // not UTF-8; U+FFFD is dropped, too
    if (is_bert_space(code)) {
      end_word();
      continue;
    }
    if (lower_case ? is_bert_dropped(code) : is_bert_control(code)) continue;
    form.clear();
    if (lower_case) {
      append_bert_form(code, form);
    } else {
      form += code;
    }
    const bool is_ideograph = divide_ideographs && is_bert_ideograph(code);
    if (is_ideograph) end_word();
    for (const char32_t character : form) {
      if (is_bert_punctuation(character)) {
        end_word();
        words.emplace_back(1, character);
      } else {
        word += character;
      }
    }
    if (is_ideograph) end_word();
  }
  end_word();
  return words;
}

struct WordPieceTokenizer::Impl {
  WordPieceOptions options;
  std::vector<std::string> names;  ///< By token.
  std::unordered_map<std::string, int64_t> tokens;
  detail::AddedTokens added;
  int64_t unknown = 0;
  std::optional<int64_t> first, last;

  void append_pieces(std::u32string_view word, std::vector<int64_t>& to) const;
};

WordPieceTokenizer::WordPieceTokenizer(WordPieceOptions options) : impl_(std::make_unique<Impl>()) {
  for (const auto* table : {&options.vocabulary, &options.added}) {
    for (const auto& [name, token] : *table) {
      if (token < 0 || token > INT32_MAX) {
        throw Error(ErrorCode::kDataLoss, "the token '{}' has the number {}", name, token);
      }
      if (static_cast<size_t>(token) >= impl_->names.size()) impl_->names.resize(static_cast<size_t>(token) + 1);
      impl_->names[static_cast<size_t>(token)] = name;
      impl_->tokens[name] = token;
    }
  }
  const auto special = [this](const std::string& name) {
    const auto found = token(name);
    if (!found) throw Error(ErrorCode::kDataLoss, "the special token '{}' is not in the vocabulary", name);
    return *found;
  };
  impl_->unknown = special(options.unknown);
  if (!options.first.empty()) impl_->first = special(options.first);
  if (!options.last.empty()) impl_->last = special(options.last);
  impl_->added = detail::AddedTokens(options.added);
  impl_->options = std::move(options);
}

WordPieceTokenizer::~WordPieceTokenizer() = default;

int64_t WordPieceTokenizer::size() const { return static_cast<int64_t>(impl_->names.size()); }
bool WordPieceTokenizer::lower_case() const { return impl_->options.lower_case; }

std::vector<int64_t> WordPieceTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  if (impl_->first) tokens.push_back(*impl_->first);
  impl_->added.divide(
      text, [&](int64_t token) { tokens.push_back(token); },
      [&](std::string_view part) {
        for (const auto& word : bert_words(part, impl_->options.lower_case, impl_->options.divide_ideographs)) {
          impl_->append_pieces(word, tokens);
        }
      });
  if (impl_->last) tokens.push_back(*impl_->last);
  return tokens;
}

void WordPieceTokenizer::Impl::append_pieces(std::u32string_view word, std::vector<int64_t>& to) const {
  if (static_cast<int64_t>(word.size()) > options.max_characters) {
    to.push_back(unknown);
    return;
  }
  std::string bytes;
  std::vector<size_t> ends;  // of each character, in bytes
  for (const char32_t character : word) {
    bytes += to_utf8(character);
    ends.push_back(bytes.size());
  }
  const auto num_before = to.size();
  std::string piece;
  for (size_t begin = 0; begin < bytes.size();) {
    auto end = ends.rbegin();
    for (; end != ends.rend() && *end > begin; ++end) {  // the longest piece first
      piece = begin > 0 ? options.continuing : "";
      piece.append(bytes, begin, *end - begin);
      const auto found = tokens.find(piece);
      if (found == tokens.end()) continue;
      to.push_back(found->second);
      break;
    }
    if (end == ends.rend() || *end <= begin) {
      to.resize(num_before);
      to.push_back(unknown);
      return;
    }
    begin = *end;
  }
}

std::string WordPieceTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= size()) {
      throw Error(ErrorCode::kInvalidArgument, "{} is not a token; they are 0 to {}", token, size() - 1);
    }
    if (token == impl_->first || token == impl_->last) continue;
    const auto& name = impl_->names[static_cast<size_t>(token)];
    if (!text.empty() && name.starts_with(impl_->options.continuing)) {
      text += name.substr(impl_->options.continuing.size());
    } else {
      if (!text.empty()) text += ' ';
      text += name;
    }
  }
  return text;
}

std::optional<int64_t> WordPieceTokenizer::token(std::string_view text) const {
  const auto found = impl_->tokens.find(std::string(text));
  if (found == impl_->tokens.end()) return std::nullopt;
  return found->second;
}

}  // namespace yoke::models
