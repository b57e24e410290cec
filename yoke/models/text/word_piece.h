// yoke/models/text/word_piece.h -- the tokenizer of BERT: words, and pieces of words that are not in the vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/models/text/tokenizer.h"

namespace yoke::models {

struct WordPieceOptions {
  std::map<std::string, int64_t> vocabulary;  ///< The number of each token by its text.
  std::map<std::string, int64_t> added;       ///< Texts that become their token before anything else is done: "[MASK]".
  bool lower_case = true;         ///< Makes small letters without accents of all letters; false for a cased model.
  bool divide_ideographs = true;  ///< Makes a word of each ideograph, as of Chinese.
  std::string continuing = "##";  ///< Before a piece that does not begin its word.
  std::string unknown = "[UNK]";  ///< For a word that has no pieces, or more than `max_characters`.
  std::string first = "[CLS]";    ///< encode() puts it before a text; empty: nothing.
  std::string last = "[SEP]";     ///< The same after it.
  int64_t max_characters = 100;   ///< Of a word, after normalisation.
};

/// Normalises a text, divides it at white space and around punctuation and ideographs, and each word into the longest
/// pieces of the vocabulary, from its beginning.
///
/// Normalisation  control characters are dropped, and white space becomes spaces; if `lower_case`, letters are
/// decomposed
///                (NFD), accents are dropped, and the rest is made small. The tables are in characters.h; no other
///                library is used. Marks that stay after their letter keep their order, where NFD might exchange two of
///                them.
/// Files          tokenizer.json with the model WordPiece and BERT's normaliser, or BERT's vocab.txt, beside which
///                tokenizer_config.json may say `do_lower_case` and `tokenize_chinese_chars`. Truncation and padding of
///                the file are ignored.
/// Source         Devlin et al., "BERT", NAACL 2019; tests compare with Hugging Face's package tokenizers.
class WordPieceTokenizer : public Tokenizer {
 public:
  /// Errors  kDataLoss: a special token is not in the vocabulary.
  explicit WordPieceTokenizer(WordPieceOptions options);
  ~WordPieceTokenizer() override;

  /// The tokens between `first` and `last`.
  std::vector<int64_t> encode(std::string_view text) const override;
  /// Words with spaces between them, without `first` and `last`: normalisation cannot be undone.
  std::string decode(std::span<const int64_t> tokens) const override;
  int64_t size() const override;
  std::optional<int64_t> token(std::string_view text) const override;
  bool lower_case() const;  ///< WordPieceOptions::lower_case.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Normalises a text and divides it into words, before they are divided into pieces.
std::vector<std::u32string> bert_words(std::string_view text, bool lower_case = true, bool divide_ideographs = true);

}  // namespace yoke::models
