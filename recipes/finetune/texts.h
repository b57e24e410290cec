// recipes/finetune/texts.h -- texts of files as batches of tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "recipes/finetune/options.h"
#include "yoke/dist/world.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/train/data/collate.h"
#include "yoke/train/data/source.h"

namespace finetune {

struct Batch {
  at::Tensor tokens;  ///< int64 [batch, length]
  at::Tensor mask;    ///< bool [batch, length], false for padding.
  at::Tensor target;  ///< int64: the classes [batch], or the token after each [batch, length].
};
inline void for_each_tensor(Batch& batch, const yoke::train::TensorVisitor& f) {
  f(batch.tokens);
  f(batch.mask);
  f(batch.target);  // the last one: its rows are counted as samples
}

using TokenLists = std::vector<std::vector<int64_t>>;

/// A source of texts for a Loader.
class Texts {
 public:
  /// To classify: the tokens of each text, and its class.
  Texts(TokenLists tokens, std::vector<int64_t> targets, int64_t max_length, int64_t padding)
      : tokens_(std::move(tokens)), targets_(std::move(targets)), max_length_(max_length), padding_(padding) {}
  /// To predict tokens: sequences of one length, whose last token is a target only.
  explicit Texts(TokenLists sequences) : tokens_(std::move(sequences)) {}

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  Batch batch(const yoke::train::BatchRequest& request) const;

 private:
  TokenLists tokens_;
  std::vector<int64_t> targets_;
  int64_t max_length_ = 0, padding_ = 0;
};

struct Sets {
  Texts train, test;
  std::vector<std::string> labels;  ///< The names of the classes.
};

/// Reads --data and --test to classify. The classes are `own_labels`, those of the network in --model, if the labels of
/// the data are among them or are their numbers; otherwise those of the data.
/// Errors  as errno says; kDataLoss: a line is not what it should be (names it); kInvalidArgument: there are fewer
/// texts
///         to test than ranks, or only one class.
Sets read_labelled(const Options& options, const std::vector<std::string>& own_labels,
                   const yoke::models::Tokenizer& tokenizer, int64_t num_ranks);

/// Reads --data and --test as text that goes on: sequences of max_length tokens, over the borders of texts. After each
/// text is the token "<|endoftext|>", if the tokenizer has it. What is left at the end is not used.
/// Errors  as read_labelled.
Sets read_sequences(const Options& options, const yoke::models::Tokenizer& tokenizer, int64_t num_ranks);

/// Collective. Rank 0 writes a small BERT and invented reviews into a folder, if they are not there. Sets --model,
/// --data and --test to them if they are empty.
void write_smallest(const std::filesystem::path& folder, yoke::dist::World& world, Options& options);

}  // namespace finetune
