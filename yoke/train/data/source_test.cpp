// Tests loaders with user-defined sources: samples of any type, collate functions, augmentation, unreadable samples.
#include "yoke/train/data/source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sequences of tokens. Sample i is the number i, repeated i % 5 + 1 times.
struct Sequences {
  int64_t count = 0;
  int64_t size() const { return count; }
  at::Tensor sample(int64_t i) const { return at::full({i % 5 + 1}, i, at::kLong); }
};

// A user-defined type of batch.
struct Padded {
  at::Tensor tokens;   // [batch, longest]
  at::Tensor lengths;  // [batch]
};

struct Pad {
  Padded operator()(const BatchRequest& request, const std::vector<at::Tensor>& samples) const {
    auto lengths = request.empty({static_cast<int64_t>(samples.size())}, at::kLong);
    for (size_t i = 0; i < samples.size(); ++i) lengths.mutable_data_ptr<int64_t>()[i] = samples[i].size(0);
    return {pad(request, samples, -1), lengths};
  }
};

TEST(Source, OfAnyShapesTakesACollateFunction) {
  for (const int64_t num_workers : {0, 1, 3}) {
    Loader loader(Sequences{12}, {.batch_size = 5, .shuffle = false, .num_workers = num_workers}, Pad());
    std::vector<int64_t> widths;
    int64_t next = 0;
    for (const auto& batch : loader.epoch(0)) {
      widths.push_back(batch.tokens.size(1));
      for (int64_t row = 0; row < batch.tokens.size(0); ++row, ++next) {
        const int64_t length = next % 5 + 1;
        EXPECT_EQ(batch.lengths[row].item<int64_t>(), length);
        EXPECT_TRUE((batch.tokens[row].narrow(0, 0, length) == next).all().item<bool>());
        EXPECT_TRUE((batch.tokens[row].narrow(0, length, batch.tokens.size(1) - length) == -1).all().item<bool>());
      }
    }
    EXPECT_EQ(next, 12);
    EXPECT_THAT(widths, ElementsAre(5, 5, 2));
  }
}

TEST(Source, OfDifferentShapesWithoutACollateFunctionSaysWhatToDo) {
  Loader loader(Sequences{12}, {.batch_size = 5, .shuffle = false});
  loader.epoch(0);
  EXPECT_THAT(message_of([&] { loader.next(); }),
              AllOf(HasSubstr("sample 1 of the batch is [2] Long, but the first one is [1] Long"),
                    HasSubstr("give the Loader a collate function")));
}

// Samples with numbers, text and several tensors.
struct Mixed {
  int64_t size() const { return 4; }
  std::tuple<at::Tensor, double, std::pair<int64_t, std::string>> sample(int64_t i) const {
    return {at::full({2, 3}, i, at::kFloat), 0.5 * static_cast<double>(i), {i, "sample " + std::to_string(i)}};
  }
};

TEST(Source, OfTuplesGivesTuplesOfBatches) {
  Loader loader(Mixed(), {.batch_size = 4, .shuffle = false});
  loader.epoch(0);
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  const auto& [tensors, numbers, pair] = *batch;
  EXPECT_THAT(tensors.sizes().vec(), ElementsAre(4, 2, 3));
  EXPECT_TRUE((tensors[3] == 3).all().item<bool>());
  EXPECT_TRUE(at::equal(numbers, at::arange(4).to(at::kDouble) / 2));
  EXPECT_TRUE(at::equal(pair.first, at::arange(4)));
  EXPECT_THAT(pair.second, ElementsAre("sample 0", "sample 1", "sample 2", "sample 3"));
}

// Samples with random augmentation. The target of a sample is its index.
struct Augmented {
  int64_t count = 0;
  int64_t size() const { return count; }
  Sample sample(int64_t i, SampleRandom& random) const {
    return {at::full({3}, random.uniform(), at::kDouble), at::tensor(i)};
  }
};

std::vector<std::pair<int64_t, double>> contents(const Batch& batch) {
  std::vector<std::pair<int64_t, double>> result;
  for (int64_t i = 0; i < batch.target.size(0); ++i) {
    result.emplace_back(batch.target[i].item<int64_t>(), batch.data[i][0].item<double>());
  }
  return result;
}

// Oracle: one process without workers. Global batches of 24 over 1, 2 and 4 ranks contain the same samples with the
// same random numbers. So does an epoch that is resumed three times, each time with different numbers of ranks and
// workers.
TEST(Source, SamplesAndAugmentationAreTheSameHoweverTheWorkIsDivided) {
  constexpr int64_t kCount = 240, kGlobalBatch = 24, kEpoch = 2;
  const auto batches_of = [&](int64_t num_ranks, int64_t num_workers, int64_t first, int64_t last,
                              std::optional<LoaderPosition>& position) {
    std::vector<std::multiset<std::pair<int64_t, double>>> batches(static_cast<size_t>(last - first));
    std::mutex mutex;
    auto end = position;
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      Loader loader(Augmented{kCount}, world,
                    {.batch_size = kGlobalBatch / num_ranks, .seed = 9, .num_workers = num_workers});
      if (position) loader.resume(*position);
      auto range = loader.epoch(kEpoch);
      for (int64_t number = first; number < last; ++number) {
        const auto batch = loader.next();
        const std::lock_guard lock(mutex);
        for (const auto& sample : contents(*batch)) batches[static_cast<size_t>(number - first)].insert(sample);
        end = loader.position();
      }
    });
    position = end;
    return batches;
  };
  std::optional<LoaderPosition> none;
  const auto expected = batches_of(1, 0, 0, 10, none);
  std::set<std::pair<int64_t, double>> distinct;
  for (const auto& batch : expected) distinct.insert(batch.begin(), batch.end());
  EXPECT_EQ(distinct.size(), static_cast<size_t>(kCount)) << "each sample once";
  for (const int64_t num_ranks : {1, 2, 4}) {
    for (const int64_t num_workers : {0, 1, 4, 16}) {
      std::optional<LoaderPosition> position;
      EXPECT_EQ(batches_of(num_ranks, num_workers, 0, 10, position), expected) << num_ranks << " " << num_workers;
    }
  }
  std::optional<LoaderPosition> position;
  auto resumed = batches_of(2, 1, 0, 3, position);
  for (const auto& [num_ranks, num_workers, first, last] :
       {std::tuple{4, 0, 3, 4}, std::tuple{1, 16, 4, 8}, std::tuple{2, 3, 8, 10}}) {
    EXPECT_LT(text_of(*position).size(), 100u);
    for (auto& batch : batches_of(num_ranks, num_workers, first, last, position)) resumed.push_back(std::move(batch));
  }
  EXPECT_EQ(resumed, expected);
}

// Samples 3, 7 and 11 cannot be read.
struct Damaged {
  int64_t size() const { return 12; }
  Sample sample(int64_t i) const {
    if (i % 4 == 3) throw Error(ErrorCode::kDataLoss, "image-{}.jpg is truncated", i);
    return {at::full({2}, i, at::kFloat), at::tensor(i)};
  }
};

TEST(Source, ASampleThatCannotBeReadIsNamed) {
  for (const int64_t num_workers : {0, 2}) {
    Loader loader(Damaged(), {.batch_size = 4, .shuffle = false, .num_workers = num_workers});
    loader.epoch(0);
    EXPECT_THAT(message_of([&] { loader.next(); }, ErrorCode::kDataLoss), HasSubstr("image-3.jpg is truncated"));
  }
}

TEST(Source, BadSamplesAreLeftOutAndCountedIfAllowed) {
  for (const int64_t num_workers : {0, 1, 3}) {
    Loader loader(Damaged(), {.batch_size = 4, .shuffle = false, .num_workers = num_workers, .max_bad_samples = 3});
    for (int round = 0; round < 2; ++round) {
      std::vector<int64_t> given;
      for (const auto& batch : loader.epoch(0)) {
        EXPECT_THAT(batch.data.sizes().vec(), ElementsAre(3, 2));
        for (const auto& [sample, value] : contents({batch.data.to(at::kDouble), batch.target}))
          given.push_back(sample);
      }
      EXPECT_THAT(given, ElementsAre(0, 1, 2, 4, 5, 6, 8, 9, 10));
      ASSERT_EQ(loader.bad_samples().size(), 3u);
      EXPECT_EQ(loader.bad_samples()[1].sample, 7);
      EXPECT_EQ(loader.bad_samples()[1].error, "image-7.jpg is truncated");
    }
  }
  Loader strict(Damaged(), {.batch_size = 4, .shuffle = false, .max_bad_samples = 1});
  strict.epoch(0);
  EXPECT_TRUE(strict.next());
  EXPECT_THAT(message_of([&] { strict.next(); }, ErrorCode::kDataLoss),
              AllOf(HasSubstr("over 1 samples cannot be read"), HasSubstr("sample 7: image-7.jpg is truncated")));
  Loader none(Damaged(), {.batch_size = 1, .max_bad_samples = 12});
  none.start({3});
  EXPECT_THAT(message_of([&] { none.next(); }, ErrorCode::kDataLoss),
              HasSubstr("none of the 1 samples of a batch can be read; sample 3: image-3.jpg is truncated"));
}

struct Mismatched {
  int64_t size() const { return 2; }
  at::Tensor sample(int64_t i) const { return i == 1 ? at::ones({2}).dot(at::ones({3})) : at::ones({}); }
};

TEST(Source, ABadSampleIsExplainedWithoutAStackTrace) {
  Loader loader(Mismatched(), {.batch_size = 2, .shuffle = false, .max_bad_samples = 1});
  for (const auto& batch : loader.epoch(0)) EXPECT_EQ(batch.size(0), 1);
  ASSERT_EQ(loader.bad_samples().size(), 1u);
  EXPECT_THAT(loader.bad_samples()[0].error, HasSubstr("inconsistent tensor size"));
  EXPECT_THAT(loader.bad_samples()[0].error, testing::Not(HasSubstr("\n")));
}

TEST(Source, WithASamplerFollowsIt) {
  Loader loader(Augmented{10}, {.batch_size = 5, .sampler = shuffled({1, 3, 5}, 0)});
  std::multiset<int64_t> given;
  for (const auto& batch : loader.epoch(0)) {
    for (const auto& [sample, value] : contents(batch)) given.insert(sample);
  }
  EXPECT_THAT(given, ElementsAre(1, 3, 5));
  Loader wrong(Augmented{4}, {.sampler = shuffled({1, 30}, 0)});
  wrong.epoch(0);
  EXPECT_THAT(message_of([&] { wrong.next(); }), HasSubstr("sample 30"));
}

TEST(Source, RefusesOptionsForSamples) {
  EXPECT_THAT(message_of([] {
                Loader(Augmented{4}, {.normalization = Normalization{{0.5}, {0.5}}});
              }),
              HasSubstr("normalization, dtype and memory_format are for Samples"));
}

// A source that can be moved but not copied, and that makes whole batches of its own type.
struct WholeBatches {
  std::unique_ptr<int64_t> first = std::make_unique<int64_t>(100);
  int64_t size() const { return 6; }
  std::map<std::string, at::Tensor> batch(const BatchRequest& request) const {
    auto numbers = request.empty({request.size()}, at::kLong);
    for (int64_t i = 0; i < request.size(); ++i) {
      numbers.mutable_data_ptr<int64_t>()[i] = *first + request.samples()[static_cast<size_t>(i)];
    }
    return {{"numbers", numbers}};
  }
};

TEST(Source, MayMakeWholeBatches) {
  Loader loader(WholeBatches(), {.batch_size = 6, .shuffle = false});
  loader.epoch(0);
  EXPECT_TRUE(at::equal(loader.next()->at("numbers"), at::arange(100, 106)));
  EXPECT_FALSE(loader.next());
}

}  // namespace
}  // namespace yoke::train
