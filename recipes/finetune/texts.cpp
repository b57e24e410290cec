#include "recipes/finetune/texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "recipes/common/csv.h"
#include "recipes/common/small_bert.h"
#include "recipes/common/training.h"
#include "recipes/finetune/reviews.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/models/bert.h"
#include "yoke/train/data/sampler.h"

namespace finetune {

using namespace yoke;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kReviewsToTrain = 3000, kReviewsToTest = 500;

using Rows = std::vector<std::vector<std::string>>;  // the text, and the label if that is wanted

std::vector<std::string> fields_of(const std::string& line, const std::vector<std::string>& names) {
  const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> fields;
  for (const auto& name : names) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (!json.is_object() || found == json.end() || found->is_structured() || found->is_null()) return {};
    fields.push_back(found->is_string() ? found->get<std::string>() : found->dump());
  }
  return fields;
}

/// The fields `names` of each row of a file, which are not empty.
Rows read_rows(const fs::path& path, const std::vector<std::string>& names) {
  if (path.extension() == ".csv") return recipes::read_csv(path, names);
  const bool is_json = path.extension() == ".jsonl" || path.extension() == ".json";
  if (!is_json && names.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "{}: a file with labels is .csv or .jsonl", path.string());
  }
  const auto file = read_file(path);
  Rows rows;
  int64_t number = 0;
  for (const auto line : lines_of(file)) {
    ++number;
    const std::string text(trimmed(line, "\r"));
    if (text.empty()) continue;
    rows.push_back(is_json ? fields_of(text, names) : std::vector{text});
    if (rows.back().empty() || rows.back()[0].empty()) {
      throw Error(ErrorCode::kDataLoss, "{}:{}: expected an object with {}, found {}", path.string(), number,
                  fmt::join(names, " and "), text.substr(0, 100));
    }
  }
  return rows;
}

std::pair<Rows, Rows> read_sets(const Options& options, const std::vector<std::string>& names) {
  auto rows = read_rows(options.data, names);
  if (!options.test.empty()) return {std::move(rows), read_rows(options.test, names)};
  std::pair<Rows, Rows> sets;
  const auto parts = train::random_split(static_cast<int64_t>(rows.size()), {0.9, 0.1}, options.seed);
  for (const auto i : parts[0]) sets.first.push_back(std::move(rows[static_cast<size_t>(i)]));
  for (const auto i : parts[1]) sets.second.push_back(std::move(rows[static_cast<size_t>(i)]));
  return sets;
}

recipes::Classes classes_of(const std::vector<std::string>& labels, const std::vector<std::string>& own) {
  auto classes = recipes::number_classes(labels);
  const auto place = [&](const std::string& name) { return std::ranges::find(own, name) - own.begin(); };
  const auto is_own = [&](const std::string& name) { return std::ranges::find(own, name) != own.end(); };
  if (std::ranges::all_of(classes.names, is_own)) {
    for (auto& target : classes.targets) target = place(classes.names[static_cast<size_t>(target)]);
    classes.names = own;
  } else if (classes.names.size() <= own.size() && classes.names.front() == "0" &&
             classes.names.back() == std::to_string(classes.names.size() - 1)) {
    classes.names = own;  // numbers of its classes
  }
  return classes;
}

void check_sizes(const Options& options, const Sets& sets, int64_t num_ranks, const char* what) {
  if (sets.train.size() >= 1 && sets.test.size() >= num_ranks) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{} has {} {} to train, and {} has {} to test, too few for {}; give more texts, or fewer tokens by "
              "--max-length",
              options.data, sets.train.size(), what, options.test.empty() ? "a tenth of it" : options.test,
              sets.test.size(), num_ranks == 1 ? "a rank" : fmt::format("{} ranks", num_ranks));
}

TokenLists sequences_of(const Rows& rows, const models::Tokenizer& tokenizer, int64_t length) {
  const auto end = tokenizer.token("<|endoftext|>");
  std::vector<int64_t> all;
  for (const auto& row : rows) {
    const auto tokens = tokenizer.encode(row[0]);
    all.insert(all.end(), tokens.begin(), tokens.end());
    if (end) all.push_back(*end);
  }
  TokenLists result;
  for (auto first = all.begin(); all.end() - first > length; first += length) {
    result.emplace_back(first, first + length + 1);
  }
  return result;
}

std::string json_lines_of_reviews(int64_t first, int64_t count) {
  std::string text;
  for (int64_t i = first; i < first + count; ++i) {
    const auto review = invent_review(i);
    text += Json{{"text", review.text}, {"label", review.is_positive ? "positive" : "negative"}}.dump() + "\n";
  }
  return text;
}

}  // namespace

Batch Texts::batch(const train::BatchRequest& request) const {
  TokenLists lists;
  std::vector<int64_t> targets;
  request.for_each([&](int64_t, int64_t sample, train::SampleRandom&) {
    lists.push_back(tokens_[static_cast<size_t>(sample)]);
    if (!targets_.empty()) targets.push_back(targets_[static_cast<size_t>(sample)]);
  });
  auto [tokens, mask] = models::pad_tokens(lists, max_length_, padding_);
  if (!targets_.empty()) {
    auto target = request.empty({static_cast<int64_t>(targets.size())}, at::kLong);
    std::ranges::copy(targets, target.mutable_data_ptr<int64_t>());
    return {tokens, mask, target};
  }
  const auto length = tokens.size(1) - 1;
  return {tokens.narrow(1, 0, length), mask.narrow(1, 0, length), tokens.narrow(1, 1, length)};
}

Sets read_labelled(const Options& options, const std::vector<std::string>& own_labels,
                   const models::Tokenizer& tokenizer, int64_t num_ranks) {
  const auto [train, test] = read_sets(options, {"text", "label"});
  std::vector<std::string> labels;
  for (const auto* rows : {&train, &test}) {
    for (const auto& row : *rows) labels.push_back(row[1]);
  }
  const auto trained = std::span(labels).first(train.size());
  for (const auto& label : std::span(labels).subspan(options.test.empty() ? labels.size() : train.size())) {
    if (std::ranges::find(trained, label) != trained.end()) continue;
    if (std::ranges::find(own_labels, label) != own_labels.end()) continue;
    throw Error(ErrorCode::kInvalidArgument, "{} has the label '{}', which no text in {} has", options.test, label,
                options.data);
  }
  const auto classes = classes_of(labels, own_labels);
  if (classes.names.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument, "all texts in {} have the same label, so there is nothing to learn",
                options.data);
  }
  auto target = classes.targets.begin();
  const auto texts_of = [&](const Rows& rows) {
    TokenLists tokens;
    std::vector<int64_t> targets;
    for (const auto& row : rows) {
      tokens.push_back(tokenizer.encode(row[0]));
      targets.push_back(*target++);
    }
    return Texts(std::move(tokens), std::move(targets), options.max_length, tokenizer.token("[PAD]").value_or(0));
  };
  auto train_texts = texts_of(train);
  Sets sets{std::move(train_texts), texts_of(test), classes.names};
  check_sizes(options, sets, num_ranks, "texts");
  return sets;
}

Sets read_sequences(const Options& options, const models::Tokenizer& tokenizer, int64_t num_ranks) {
  const auto [train, test] = read_sets(options, {"text"});
  Sets sets{Texts(sequences_of(train, tokenizer, options.max_length)),
            Texts(sequences_of(test, tokenizer, options.max_length)),
            {}};
  check_sizes(options, sets, num_ranks, "sequences");
  return sets;
}

void write_smallest(const fs::path& folder, dist::World& world, Options& options) {
  recipes::on_rank_zero(world, [&] {
    if (fs::exists(folder)) return;
    const fs::path partial = folder.string() + ".partial";
    fs::remove_all(partial);
    recipes::write_small_bert(partial, review_words(),
                              {.max_length = 32, .width = 64, .num_layers = 2, .num_heads = 4, .hidden_width = 128},
                              options.seed);
    replace_file(partial / "train.jsonl", json_lines_of_reviews(0, kReviewsToTrain));
    replace_file(partial / "test.jsonl", json_lines_of_reviews(kReviewsToTrain, kReviewsToTest));
    fs::rename(partial, folder);
  });
  if (options.model.empty()) options.model = folder;
  if (!options.data.empty()) return;
  options.data = folder / "train.jsonl";
  options.test = folder / "test.jsonl";
}

}  // namespace finetune
