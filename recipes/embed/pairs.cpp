#include "recipes/embed/pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipes/common/small_bert.h"
#include "recipes/common/training.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/train/data/sample_random.h"

namespace embed {

using namespace yoke;

namespace {

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  const auto text = read_file(path);
  std::vector<std::string> lines;
  for (const auto line : lines_of(text)) lines.emplace_back(trimmed(line, "\r"));
  if (lines.empty()) throw Error(ErrorCode::kInvalidArgument, "{} has no lines", path.string());
  return lines;
}

constexpr int64_t kNumWords = 100, kPairsToTrain = 1024, kPairsToTest = 200;

std::string invented_pairs(int64_t first, int64_t count) {
  std::string text;
  for (int64_t i = first; i < first + count; ++i) {
    train::SampleRandom random(0x70616972, 0, i);
    const auto x = random.below(kNumWords), y = random.below(kNumWords), z = random.below(kNumWords);
    text += fmt::format("aword{} aword{} aword{}\tbword{} bword{} bword{}\n", x, y, z, z, x, y);
  }
  return text;
}

}  // namespace

void write_smallest(const std::filesystem::path& folder, dist::World& world, Options& options) {
  recipes::on_rank_zero(world, [&] {
    std::vector<std::string> words;
    for (const char language : {'a', 'b'}) {
      for (int64_t i = 0; i < kNumWords; ++i) words.push_back(fmt::format("{}word{}", language, i));
    }
    recipes::write_small_bert(folder, words,
                              {.max_length = 16, .width = 32, .num_layers = 1, .num_heads = 2, .hidden_width = 64},
                              options.seed);
    replace_file(folder / "train.tsv", invented_pairs(0, kPairsToTrain));
    replace_file(folder / "test.tsv", invented_pairs(kPairsToTrain, kPairsToTest));
  });
  options.model = folder;
  options.data = folder / "train.tsv";
  options.test = folder / "test.tsv";
}

Pairs::Pairs(const std::filesystem::path& path, Options options) : options_(std::move(options)) {
  int64_t number = 0;
  for (const auto& line : read_lines(path)) {
    ++number;
    const auto parts = split(line, '\t');
    if (parts.size() != 2) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{}: line {} has {} tabs, but a pair is two sentences with one between them", path.string(), number,
                  parts.empty() ? 0 : parts.size() - 1);
    }
    pairs_.emplace_back(parts[0], parts[1]);
  }
}

Batch Pairs::batch(const train::BatchRequest& request) const {
  std::vector<std::vector<int64_t>> lists(static_cast<size_t>(2 * request.size()));
  request.for_each([&](int64_t row, int64_t sample, train::SampleRandom&) {
    const auto& [first, second] = pairs_[static_cast<size_t>(sample)];
    lists[static_cast<size_t>(row)] = options_.tokenizer->encode(first);
    lists[static_cast<size_t>(request.size() + row)] = options_.tokenizer->encode(second);
  });
  return {models::pad_tokens(lists, options_.max_length, options_.tokenizer->token("[PAD]").value_or(0))};
}

}  // namespace embed
