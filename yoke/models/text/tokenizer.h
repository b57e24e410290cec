// yoke/models/text/tokenizer.h -- text to numbers and back.
//
//     const auto tokenizer = models::read_tokenizer("gpt2");      // a folder of Hugging Face's files, or "bytes"
//     const auto tokens = tokenizer->encode("Once upon a time");
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::models {

/// Thread-safe: a tokenizer does not change after its construction, as seen from outside.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Any bytes are allowed.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;

  /// Errors  kInvalidArgument: a token is outside [0, size()).
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;

  /// Tokens are in [0, size()).
  virtual int64_t size() const = 0;

  /// The number of a token by its text, such as "<|endoftext|>" or "[MASK]".
  virtual std::optional<int64_t> token(std::string_view text) const = 0;
};

/// Each byte of the text is a token, so any text can be encoded and comes back unchanged. size() is 256.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> tokens) const override;
  int64_t size() const override { return 256; }
  std::optional<int64_t> token(std::string_view text) const override;
};

/// Reads a tokenizer: "bytes"; a `tokenizer.json`, whose content says which kind it is; a `vocab.txt` of BERT; or a
/// folder with one of these, or with GPT-2's `vocab.json` and `merges.txt`. See bpe.h and word_piece.h for what is
/// supported. Errors  kNotFound: the path, or a tokenizer in the folder, does not exist; kDataLoss, with the path: the
/// content is
///         not what it should be; kFailedPrecondition, naming the part: the file asks for something else than these two
///         kinds of tokenizer do.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path);

/// Copies the files of a tokenizer from one folder to another, with those that only Python reads, such as
/// special_tokens_map.json. Errors  as errno says.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace yoke::models
