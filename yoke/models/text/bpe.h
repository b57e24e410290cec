// yoke/models/text/bpe.h -- byte-level byte-pair encoding, the tokenizer of GPT-2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/models/text/tokenizer.h"

namespace yoke::models {

struct BpeOptions {
  /// The number of each token by its text. The bytes of tokens are written as GPT-2 does: printable ones of Latin-1
  /// stand for themselves, the others for characters from U+0100 on, so a space is "Ġ".
  std::map<std::string, int64_t> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< The first one is merged first.
  /// Texts that become their token before anything else is done, such as "<|endoftext|>". Of those that begin at one
  /// place, the longest is taken.
  std::map<std::string, int64_t> added;
  bool add_prefix_space = false;  ///< A text that does not begin with white space gets a space before it.
  bool ignore_merges = false;     ///< A word that is in the vocabulary is that token, whatever the merges say.
};

/// Divides a text into words by GPT-2's pattern
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// and each word into tokens by merging the pair of neighbours that comes first in `merges` until no pair is in it.
///
/// Files    tokenizer.json with the model BPE and the pre-tokenizer ByteLevel; or vocab.json and merges.txt, in which
///          "<|endoftext|>" is an added token.
/// Bytes    decode(encode(text)) is the text, whatever its bytes (after a space, with add_prefix_space). Tokens may end
///          within a character, so a part of them may decode to what is not UTF-8.
/// Speed    words that were seen before are found in a table of up to 65,536 words.
/// Source   Radford et al., 2019, sec. 2.2; tests compare with Hugging Face's package tokenizers.
class BpeTokenizer : public Tokenizer {
 public:
  /// Errors  kDataLoss: a merge or an added token lacks its token in the vocabulary, a byte has no token, or two tokens
  ///         have one number.
  explicit BpeTokenizer(BpeOptions options);
  ~BpeTokenizer() override;

  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> tokens) const override;
  int64_t size() const override;
  std::optional<int64_t> token(std::string_view text) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Divides a text as GPT-2's pattern does; the parts are views of the text. Bytes that are not UTF-8 are neither
/// letters, numbers nor spaces.
std::vector<std::string_view> gpt2_words(std::string_view text);

}  // namespace yoke::models
