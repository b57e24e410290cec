// yoke/train/data/token_files.h -- sequences of tokens from binary files, for language models.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/train/data/collate.h"
#include "yoke/train/data/source.h"

namespace yoke::train {

struct TokenOptions {
  int64_t sequence_length = 1024;
  at::ScalarType dtype = at::kUInt16;      ///< Dtype of stored tokens: kUInt16 or kUInt32, in the machine's byte order.
  int64_t offset_bytes = 0;                ///< Offset of the first token in each file, for files with a header.
  int64_t vocabulary_size = 0;             ///< If above 0, a token equal to or above this number is an error.
  std::optional<int64_t> end_of_document;  ///< The token after each document. If set, batches have `documents`.
};

/// All tensors are int64 [batch, sequence_length].
struct TokenBatch {
  at::Tensor data;
  at::Tensor target;  ///< The token after each token of `data`.
  /// The document to which each token of `data` belongs: 0 for the first document in its sequence. If a mask allows
  /// attention only where these numbers are equal, packed documents do not affect each other. Undefined without
  /// end_of_document.
  at::Tensor documents;
};

inline void for_each_tensor(TokenBatch& batch, const TensorVisitor& f) {
  for_each_tensor(batch.documents, f);
  for_each_tensor(batch.data, f);
  for_each_tensor(batch.target, f);
}

/// A source of the sequences in files of tokens without any structure, as nanoGPT and llm.c write them. Sequence i of a
/// file has the tokens from i * sequence_length on; an incomplete last sequence is left out. Files are read, not
/// mapped, so that a file that becomes shorter causes an error and not a crash. Linux keeps the files' pages in its
/// cache.
class TokenFiles {
 public:
  /// Errors  kInvalidArgument: no files, or an option that is out of range; kDataLoss: a file's size is not a multiple
  ///         of a token's, or the file is shorter than one sequence; as errno says, with the path.
  TokenFiles(std::vector<std::filesystem::path> paths, const TokenOptions& options);

  int64_t size() const;  ///< The number of sequences in all files.

  /// Errors  kDataLoss: a file has become shorter, or a token is outside of the vocabulary; names file and position.
  TokenBatch batch(const BatchRequest& request) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace yoke::train
