// recipes/embed/pairs.h -- pairs of sentences, from files to batches of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recipes/embed/options.h"
#include "yoke/dist/world.h"
#include "yoke/models/bert.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/train/data/collate.h"
#include "yoke/train/data/source.h"

namespace embed {

/// Sentences of `pairs` pairs: first all first ones, then all second ones.
struct Batch : yoke::models::PaddedTokens {
  int64_t num_pairs() const { return tokens.size(0) / 2; }
};
inline void for_each_tensor(Batch& batch, const yoke::train::TensorVisitor& f) {
  f(batch.mask);
  f(batch.tokens);  // the last one: its rows are counted as samples
}

/// A source of pairs for a Loader.
class Pairs {
 public:
  struct Options {
    std::shared_ptr<const yoke::models::Tokenizer> tokenizer;
    int64_t max_length = 256;
  };
  /// Reads lines of two sentences with a tab between them.
  /// Errors  as errno says, with the path; kInvalidArgument: there is no line, or one has no tab, or more than one.
  Pairs(const std::filesystem::path& path, Options options);

  int64_t size() const { return static_cast<int64_t>(pairs_.size()); }
  Batch batch(const yoke::train::BatchRequest& request) const;

 private:
  Options options_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

/// Collective. Rank 0 writes a small BERT with random weights, and pairs, into a folder. A pair is words of one
/// language, and the same words of another in another order. Sets --model, --data and --test to them.
void write_smallest(const std::filesystem::path& folder, yoke::dist::World& world, Options& options);

}  // namespace embed
