// recipes/gpt/text_windows.h -- sequences of a text's tokens, as a source for a Loader.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

#include "yoke/models/text/tokenizer.h"
#include "yoke/train/data/samples.h"
#include "yoke/train/data/source.h"

namespace gpt {

/// Reads a text and returns its tokens, int64 [n] on the CPU.
/// Errors  kInvalidArgument: it has fewer than `length` + 1 tokens; as errno says, with the path.
at::Tensor read_tokens(const std::filesystem::path& path, const yoke::models::Tokenizer& tokenizer, int64_t length);

/// Batches of sequences [batch, length] and the tokens after each of theirs.
class TextWindows {
 public:
  struct Options {
    int64_t length = 0;
    /// If above 0, an epoch has so many sequences, each from a random place of the text: places depend on the loader's
    /// seed and the epoch, and not on the number of ranks. If 0, the sequences follow each other and cover the text.
    int64_t num_random = 0;
  };
  TextWindows(at::Tensor tokens, const Options& options) : tokens_(std::move(tokens)), options_(options) {}

  int64_t size() const;
  yoke::train::Batch batch(const yoke::train::BatchRequest& request) const;

 private:
  at::Tensor tokens_;
  Options options_;
};

}  // namespace gpt
