#include "yoke/train/data/loader.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/sanitized.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;

Samples images(int64_t count, int64_t channels = 1, int64_t height = 6, int64_t width = 5) {
  return {at::randint(0, 256, {count, channels, height, width}, at::kByte), at::randint(0, 10, {count}, at::kLong)};
}

std::vector<int64_t> random_order(int64_t count) {
  const auto order = at::randperm(count, at::kLong);
  return {order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + count};
}

at::Tensor rows(const at::Tensor& source, const std::vector<int64_t>& indices, size_t first, size_t count) {
  const auto index = at::tensor(at::ArrayRef<int64_t>(indices).slice(first, count));
  return at::index_select(source, 0, index);
}

// Computes ToTensor and Normalize with libtorch's own operations.
at::Tensor normalized(const at::Tensor& bytes, const Normalization& normalization) {
  const auto channel = [&](const std::vector<double>& values) {
    return at::tensor(at::ArrayRef<double>(values)).to(at::kFloat).view({-1, 1, 1});
  };
  return bytes.to(at::kFloat).div(255).sub_(channel(normalization.mean)).div_(channel(normalization.stddev));
}

const Normalization kGrey{{0.2860}, {0.3530}};
const Normalization kColour{{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};

class LoaderWorkers : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, LoaderWorkers, ::testing::Values(0, 1, 3));

// Oracle: index_select and libtorch's arithmetic, in order, to the last bit.
TEST_P(LoaderWorkers, GiveTheBatchesInOrder) {
  for (const int64_t channels : {1, 3, 4}) {
    const auto samples = images(103, channels);
    const auto& normalization = channels == 3 ? kColour : kGrey;
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        Loader loader(samples, {.batch_size = 10,
                                .num_workers = GetParam(),
                                .num_prefetch = 2,
                                .normalization = normalization,
                                .dtype = dtype,
                                .memory_format = format});
        const auto indices = random_order(103);
        loader.start(indices);
        size_t first = 0;
        while (const auto batch = loader.next()) {
          const size_t count = std::min<size_t>(10, 103 - first);
          const auto expected = normalized(rows(samples.data, indices, first, count), normalization).to(dtype);
          ASSERT_EQ(batch->data.scalar_type(), dtype);
          ASSERT_TRUE(batch->data.is_contiguous(format));
          ASSERT_EQ(batch->data.strides(), at::empty(expected.sizes(), at::TensorOptions(), format).strides());
          ASSERT_TRUE(at::equal(batch->data, expected)) << channels << " channels, from " << first;
          ASSERT_TRUE(at::equal(batch->target, rows(samples.target, indices, first, count)));
          ASSERT_FALSE(batch->data.is_pinned());
          first += count;
        }
        EXPECT_EQ(first, 103u);
        EXPECT_FALSE(loader.next()) << "the end stays the end";
      }
    }
  }
}

TEST_P(LoaderWorkers, CopyAnyDtypeWithoutNormalization) {
  for (const auto dtype : {at::kByte, at::kShort, at::kFloat, at::kDouble, at::kComplexDouble}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Samples samples{images(30, 2).data.to(dtype), at::rand({30, 4})};
      Loader loader(samples, {.batch_size = 30, .num_workers = GetParam(), .memory_format = format});
      const auto indices = random_order(30);
      loader.start(indices);
      const auto batch = loader.next();
      EXPECT_TRUE(at::equal(batch->data, rows(samples.data, indices, 0, 30))) << dtype;
      EXPECT_TRUE(batch->data.is_contiguous(format));
      EXPECT_TRUE(at::equal(batch->target, rows(samples.target, indices, 0, 30)));
    }
  }
}

TEST_P(LoaderWorkers, DropTheLastBatchWhenAsked) {
  Loader loader(images(25), {.batch_size = 10, .drop_last = true, .num_workers = GetParam()});
  EXPECT_EQ(loader.num_batches(25), 2);
  loader.start(random_order(25));
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(loader.next()->data.size(0), 10);
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderWorkers, ResumeInTheMiddle) {
  const auto samples = images(40);
  Loader loader(samples, {.batch_size = 8, .num_workers = GetParam()});
  EXPECT_FALSE(loader.next()) << "not started";
  const auto indices = random_order(40);
  loader.start(indices, 3);
  EXPECT_TRUE(at::equal(loader.next()->data, rows(samples.data, indices, 24, 8)));
  EXPECT_TRUE(at::equal(loader.next()->data, rows(samples.data, indices, 32, 8)));
  EXPECT_FALSE(loader.next());
  loader.start(indices, 5);
  EXPECT_FALSE(loader.next());
  loader.start({});
  EXPECT_FALSE(loader.next());
}

std::vector<int64_t> targets(const Batch& batch) {
  return {batch.target.const_data_ptr<int64_t>(), batch.target.const_data_ptr<int64_t>() + batch.target.numel()};
}

// The target of a sample is its index, so that a batch shows which samples it contains.
Samples numbered(int64_t count) { return {at::arange(count).to(at::kFloat), at::arange(count)}; }

// Ranks divide one order between them. With another seed, sampler or data on one rank, they would train on overlapping
// samples.
TEST(Loader, AnOrderThatDiffersBetweenRanksIsNamed) {
  struct Case {
    LoaderOptions zero, one;
    int64_t num_samples_of_one = 50;
    const char* message = "";
  };
  const Case cases[] = {
      {{.seed = 7}, {.seed = 7}},
      {{.shuffle = false, .seed = 7}, {.shuffle = false, .seed = 8}},  // the seed determines the augmentation only
      {{.seed = 7}, {.seed = 8}, 50, "50 samples shuffled by seed 8"},
      {{}, {}, 40, "40 samples shuffled by seed 0"},
      {{.sampler = shuffled(50, 1)}, {.sampler = shuffled(50, 1)}},
      {{.sampler = in_order(50)}, {.sampler = shuffled(50, 2)}, 50, "50 samples in the order 0 6 12 18 25 31 37 43"},
  };
  for (const auto& one_case : cases) {
    std::array<std::string, 2> messages;
    fakes::run_ranks(2, [&](dist::World& world) {
      if (world.rank() == 0) Loader(numbered(10), world, {.batch_size = 2, .exact = true});  // of one rank only
      try {
        Loader(numbered(world.rank() == 0 ? 50 : one_case.num_samples_of_one), world,
               world.rank() == 0 ? one_case.zero : one_case.one);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        messages[static_cast<size_t>(world.rank())] = error.what();
      }
    });
    const auto both = messages[0] + messages[1];  // the rank that comes second has the error
    EXPECT_THAT(both, testing::HasSubstr(one_case.message));
    EXPECT_EQ(both.empty(), std::string(one_case.message).empty()) << both;
    if (!both.empty()) {
      EXPECT_THAT(both, testing::HasSubstr("give all ranks the same seed, sampler and samples"));
    }
  }
}

// Oracle: the sampler, which other tests compare with PyTorch's.
TEST_P(LoaderWorkers, GiveEachRankTheSamplersShareOfAnEpoch) {
  fakes::run_ranks(3, [&](dist::World& world) {
    const LoaderOptions cases[] = {{.seed = 5}, {.shuffle = false}, {.seed = 5, .exact = true}, {.drop_last = true}};
    for (auto options : cases) {
      options.batch_size = 4;
      options.num_workers = GetParam();
      const DistributedSampler sampler(world, {.num_samples = 50,
                                               .shuffle = options.shuffle,
                                               .seed = options.seed,
                                               .drop_last = options.drop_last,
                                               .exact = options.exact});
      Loader loader(numbered(50), world, options);
      for (const int64_t epoch : {0, 1, 7}) {
        std::vector<int64_t> expected = sampler.indices(epoch), given;
        if (options.drop_last) expected.resize(16);
        int64_t num_batches = 0;
        for (const auto& batch : loader.epoch(epoch)) {
          EXPECT_EQ(batch.data.device(), world.device());
          const auto indices = targets(batch);
          given.insert(given.end(), indices.begin(), indices.end());
          ++num_batches;
        }
        EXPECT_EQ(given, expected) << "epoch " << epoch << " of rank " << world.rank();
        EXPECT_EQ(loader.num_batches(), num_batches);
      }
    }
  });
}

// A sharded model communicates in each forward, so ranks need equally many batches although their samples differ by
// one.
TEST_P(LoaderWorkers, GiveAllRanksEquallyManyBatchesWithExact) {
  fakes::run_ranks(3, [&](dist::World& world) {
    for (int64_t num_samples = 3; num_samples <= 30; ++num_samples) {
      Loader loader(numbered(num_samples), world,
                    {.batch_size = 4, .shuffle = false, .exact = true, .num_workers = GetParam()});
      std::vector<std::vector<int64_t>> batches;
      LoaderPosition before_last, now;
      for (const auto& batch : loader.epoch(0)) {
        batches.push_back(targets(batch));
        before_last = std::exchange(now, loader.position());
      }
      const auto counts = world.all_gather(at::full({1}, std::ssize(batches)));
      EXPECT_EQ(counts.min().item<int64_t>(), counts.max().item<int64_t>()) << num_samples;
      EXPECT_EQ(loader.num_batches(), std::ssize(batches));
      std::vector<int64_t> given, expected;
      for (const auto& batch : batches) {
        EXPECT_TRUE(!batch.empty() && batch.size() <= 4) << num_samples;
        given.insert(given.end(), batch.begin(), batch.end());
      }
      for (int64_t sample = world.rank(); sample < num_samples; sample += 3) expected.push_back(sample);
      EXPECT_EQ(given, expected) << num_samples;
      loader.resume({.epoch = 1, .sample = before_last.sample});
      for (const auto& batch : loader.epoch(1)) EXPECT_EQ(targets(batch), batches.back()) << num_samples;
    }
  });
}

// Oracle: an uninterrupted training. A loader that resumes from any position continues with the next batch.
TEST_P(LoaderWorkers, ResumeAtEveryPosition) {
  const LoaderOptions options{.batch_size = 4, .seed = 3, .num_workers = GetParam()};
  std::vector<std::vector<int64_t>> all;
  std::vector<LoaderPosition> positions;  // entry i is the position while batch i is in use
  Loader loader(numbered(10), options);
  EXPECT_EQ(loader.position().epoch, 0);
  EXPECT_EQ(loader.position().sample, 0);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (const auto& batch : loader.epoch(epoch)) {
      all.push_back(targets(batch));
      positions.push_back(loader.position());
      EXPECT_EQ(loader.position().epoch, epoch);
    }
    EXPECT_EQ(loader.position().epoch, epoch + 1) << "after the loop";
    EXPECT_EQ(loader.position().sample, 0);
  }
  ASSERT_EQ(all.size(), 9u);
  EXPECT_EQ(positions[1].sample, 8);
  EXPECT_EQ(positions[2].sample, 10);
  for (size_t i = 0; i < positions.size(); ++i) {
    Loader resumed(numbered(10), options);
    resumed.resume(positions[i]);
    EXPECT_EQ(resumed.position().epoch, positions[i].epoch);
    EXPECT_EQ(resumed.position().sample, positions[i].sample);
    std::vector<std::vector<int64_t>> rest;
    for (int64_t epoch = resumed.position().epoch; epoch < 3; ++epoch) {
      for (const auto& batch : resumed.epoch(epoch)) rest.push_back(targets(batch));
    }
    EXPECT_EQ(rest, std::vector(all.begin() + static_cast<int64_t>(i) + 1, all.end())) << "after batch " << i;
  }
}

// Oracle: the order of one process. Ranks of any number and batch size that are killed after any batch, and others that
// go on from the position of rank 0, have each sample once, in that order, with the random numbers of its place.
TEST(Loader, AnyRanksContinueAnEpochWhereOthersStopped) {
  struct Numbers {
    int64_t size() const { return 97; }
    std::pair<int64_t, int64_t> sample(int64_t i, SampleRandom& random) const { return {i, random.below(1 << 30)}; }
  };
  struct Collect {
    std::vector<std::pair<int64_t, int64_t>> operator()(const BatchRequest&,
                                                        std::vector<std::pair<int64_t, int64_t>> samples) const {
      return samples;
    }
  };
  using Drawn = std::vector<std::pair<int64_t, int64_t>>;
  constexpr int64_t kEpoch = 2;
  Drawn expected;
  Loader whole(Numbers(), {.batch_size = 1, .seed = 4}, Collect());
  for (const auto& batch : whole.epoch(kEpoch)) expected.insert(expected.end(), batch.begin(), batch.end());

  /// Returns what the ranks have in their first batches, in the epoch's order, and moves `position`.
  const auto read = [&](int64_t num_ranks, int64_t batch_size, int64_t num_batches, LoaderPosition& position) {
    std::vector<std::vector<Drawn>> ranks(static_cast<size_t>(num_ranks));
    const auto from = position;
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      const int64_t num_workers = (world.rank() + num_batches) % 3;  // workers that read ahead have no influence
      Loader loader(Numbers(), world, {.batch_size = batch_size, .seed = 4, .exact = true, .num_workers = num_workers},
                    Collect());
      loader.resume(from);
      EXPECT_EQ(text_of(loader.position()), text_of(from));
      auto& mine = ranks[static_cast<size_t>(world.rank())];
      for (const auto& batch : loader.epoch(kEpoch)) {
        mine.push_back(batch);
        if (world.rank() == 0) position = loader.position();
        if (std::ssize(mine) == num_batches) break;
      }
      EXPECT_EQ(std::ssize(mine), std::min(num_batches, loader.num_batches(from)));
    });
    Drawn seen;
    for (size_t batch = 0; batch < ranks.front().size(); ++batch) {
      for (size_t i = 0; i < ranks.front()[batch].size(); ++i) {
        for (const auto& mine : ranks) {
          if (batch < mine.size() && i < mine[batch].size()) seen.push_back(mine[batch][i]);
        }
      }
    }
    return seen;
  };
  for (const auto& [first_ranks, first_size, stop, then_ranks, then_size] : {std::tuple{2, 5, 3, 3, 4},
                                                                             {3, 4, 1, 2, 7},
                                                                             {4, 3, 5, 1, 10},
                                                                             {1, 7, 2, 5, 6},
                                                                             {2, 6, 7, 4, 8},
                                                                             {5, 2, 9, 3, 2}}) {
    const auto what = fmt::format("{} x {}, then {} x {}", first_ranks, first_size, then_ranks, then_size);
    LoaderPosition position{.epoch = kEpoch};
    auto seen = read(first_ranks, first_size, stop, position);
    EXPECT_EQ(position.sample, stop * first_ranks * first_size) << what;
    const auto middle = read(then_ranks, then_size, 1, position);
    const auto rest = read(first_ranks, first_size, 1000, position);
    seen.insert(seen.end(), middle.begin(), middle.end());
    seen.insert(seen.end(), rest.begin(), rest.end());
    std::set<int64_t> distinct;
    for (const auto& [sample, _] : seen) distinct.insert(sample);
    EXPECT_EQ(distinct.size(), 97u) << what;
    EXPECT_EQ(std::set(seen.begin(), seen.end()), std::set(expected.begin(), expected.end())) << what;
    EXPECT_EQ(Drawn(seen.begin(), seen.begin() + stop * first_ranks * first_size),
              Drawn(expected.begin(), expected.begin() + stop * first_ranks * first_size))
        << what;
    EXPECT_EQ(position.sample, 97) << what;
  }
}

TEST_P(LoaderWorkers, BeginAnEpochAgainFromItsFirstBatchAfterBreakingOff) {
  Loader loader(numbered(10), {.batch_size = 4, .shuffle = false, .num_workers = GetParam()});
  loader.resume({.epoch = 1, .sample = 8});
  for (int round = 0; round < 2; ++round) {
    for (const auto& batch : loader.epoch(1)) {
      EXPECT_EQ(targets(batch).front(), round == 0 ? 8 : 0);
      break;
    }
  }
  EXPECT_EQ(loader.position().sample, 4);
}

TEST_P(LoaderWorkers, RefuseToBeginTwoEpochsAtOnce) {
  Loader loader(numbered(12), {.batch_size = 4, .num_workers = GetParam()});
  const auto nested = [&] {
    for ([[maybe_unused]] const auto& batch : loader.epoch(0)) loader.epoch(1);
  };
  EXPECT_THROW(nested(), Error);
}

TEST_P(LoaderWorkers, SayWhetherTheNextBatchIsReady) {
  Loader loader(images(20), {.batch_size = 10, .num_workers = GetParam()});
  EXPECT_TRUE(loader.is_ready()) << "before an order was begun, next() returns at once";
  loader.start(random_order(20));
  for (int batch = 0; batch < 2; ++batch) {
    if (GetParam() == 0) {
      EXPECT_FALSE(loader.is_ready()) << "next() has yet to make the batch";
    } else {
      EXPECT_TRUE(test::wait_until([&] { return loader.is_ready(); }));
    }
    ASSERT_TRUE(loader.next());
  }
  EXPECT_TRUE(loader.is_ready()) << "at the end, too";
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderWorkers, StartAgainAtAnyTime) {
  const auto samples = images(200);
  Loader loader(samples, {.batch_size = 4, .num_workers = GetParam(), .num_prefetch = 3});
  for (int round = 0; round < 50; ++round) {
    const auto indices = random_order(200);
    loader.start(indices);
    for (int batch = 0; batch < round % 7; ++batch) {
      const auto first = static_cast<size_t>(batch) * 4;
      ASSERT_TRUE(at::equal(loader.next()->data, rows(samples.data, indices, first, 4))) << round << " " << batch;
    }
  }
}

TEST_P(LoaderWorkers, EndWhileWorking) {
  const auto samples = images(200);
  for (int round = 0; round < 30; ++round) {
    Loader loader(samples, {.batch_size = 2, .num_workers = GetParam()});
    loader.start(random_order(200));
    for (int batch = 0; batch < round % 3; ++batch) loader.next();
  }
}

// A batch is not overwritten while it or a view of it exists, even after the loader is destroyed.
TEST_P(LoaderWorkers, LeaveHeldBatchesAlone) {
  const auto samples = images(120);
  const auto indices = random_order(120);
  std::vector<at::Tensor> held;
  {
    Loader loader(samples, {.batch_size = 4, .num_workers = GetParam(), .num_prefetch = 2});
    loader.start(indices);
    while (auto batch = loader.next()) {
      held.push_back(batch->data.narrow(0, 1, 2));
    }
  }
  ASSERT_EQ(held.size(), 30u);
  for (size_t i = 0; i < held.size(); ++i) {
    ASSERT_TRUE(at::equal(held[i], rows(samples.data, indices, i * 4 + 1, 2))) << i;
  }
}

TEST_P(LoaderWorkers, UseMemoryAgainOnceItIsLetGo) {
  const auto samples = images(400);
  Loader loader(samples, {.batch_size = 4, .num_workers = GetParam(), .num_prefetch = 2});
  loader.start(random_order(400));
  std::set<const void*> places;
  while (const auto batch = loader.next()) places.insert(batch->data.const_data_ptr());
  EXPECT_LE(places.size(), 2u + 1u + 1u);  // 2 ready or in progress, 1 in use, 1 about to be released
}

// In-place changes of a batch by the user, even of its shape, do not affect a later batch.
TEST_P(LoaderWorkers, GiveWholeBatchesAfterChangedOnes) {
  const auto samples = images(40);
  Loader loader(samples, {.batch_size = 4, .num_workers = GetParam(), .num_prefetch = 1});
  const auto indices = random_order(40);
  loader.start(indices);
  for (size_t first = 0; first < 40; first += 4) {
    auto batch = loader.next();
    ASSERT_TRUE(at::equal(batch->data, rows(samples.data, indices, first, 4)));
    batch->data.zero_();
    batch->data.unsqueeze_(0);
  }
}

TEST_P(LoaderWorkers, ThrowInNextWhatWentWrong) {
  // A sample of 16 GiB, which is never touched, appears 2^20 times in a batch.
  static char byte;
  const auto huge = at::from_blob(&byte, {1, int64_t{1} << 34}, at::kByte);
  Loader loader({huge, at::zeros({1}, at::kLong)}, {.batch_size = 1 << 20, .num_workers = GetParam()});
  for (int round = 0; round < 2; ++round) {
    loader.start(std::vector<int64_t>(1 << 20, 0));
    try {
      loader.next();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_THAT(error.what(), HasSubstr("[1048576, 17179869184] Byte"));
    }
    EXPECT_FALSE(loader.next());
  }
}

// Linux delivers a signal to any thread that does not block it.
TEST(Loader, WorkersBlockAllSignalsAndTheCallerNone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Loader loader(images(20), {.batch_size = 2, .num_workers = 2});
  loader.start(random_order(20));
  while (loader.next()) {
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));

  int num_workers = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "yoke-loader") continue;
    ++num_workers;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line) && !line.starts_with("SigBlk:")) {
    }
    const auto blocked = std::stoull(line.substr(7), nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
  }
  EXPECT_GE(num_workers, 1);  // a thread gets its name only when it first runs
}

std::string refusal(Samples samples, const LoaderOptions& options, std::vector<int64_t> indices = {},
                    int64_t first_batch = 0) {
  try {
    Loader(std::move(samples), options).start(std::move(indices), first_batch);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "(nothing thrown)";
}

// If a tensor has the conjugate flag, its memory differs from its values.
TEST(Loader, GivesConjugatedValues) {
  const auto numbers = at::view_as_complex(at::rand({5, 3, 2}));
  Loader loader({numbers.conj(), at::zeros({5}, at::kLong)}, {.batch_size = 5});
  loader.start({0, 1, 2, 3, 4});
  EXPECT_TRUE(at::equal(loader.next()->data, numbers.conj()));
}

// If an epoch began without any worker, next() would wait forever.
TEST(Loader, WithoutThreadsNothingIsBegun) {
  if (test::kIsSanitized) GTEST_SKIP() << "sanitizers need memory for each thread, or end";
  Loader loader(images(8), {.batch_size = 4, .num_workers = 1024});
  int64_t num_pages = 0;
  std::ifstream("/proc/self/statm") >> num_pages;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limit{static_cast<rlim_t>(num_pages * getpagesize()) + (256 << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_THROW(loader.start({0, 1, 2, 3}), Error);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_FALSE(loader.next());
}

TEST(Loader, RefusesWhatDoesNotFit) {
  const auto good = images(8, 3);
  const auto with = [](Normalization normalization) { return LoaderOptions{.normalization = normalization}; };
  EXPECT_THAT(refusal({good.data, at::zeros({7}, at::kLong)}, {}), HasSubstr("8 samples, but 7 targets"));
  EXPECT_THAT(refusal({at::Tensor(), good.target}, {}), HasSubstr("data must be a tensor"));
  EXPECT_THAT(refusal({good.data.transpose(2, 3), good.target}, {}), HasSubstr("data must be contiguous"));
  EXPECT_THAT(refusal({good.data.to(at::kFloat), good.target}, with(kGrey)), HasSubstr("not Float"));
  EXPECT_THAT(refusal(good, with({{0.1, 0.2}, {1, 1}})), HasSubstr("2 means"));
  EXPECT_THAT(refusal(good, with({{0.1}, {0}})), HasSubstr("[0] must be above 0"));
  EXPECT_THAT(refusal(good, {.normalization = kGrey, .dtype = at::kLong}), HasSubstr("not Long"));
  EXPECT_THAT(refusal({good.data.view({8, -1}), good.target}, {.memory_format = at::MemoryFormat::ChannelsLast}),
              HasSubstr("[N, C, H, W], not [8, 90]"));
  EXPECT_THAT(refusal(good, {.batch_size = 0}), HasSubstr("batch_size 0"));
  EXPECT_THAT(refusal(good, {.num_workers = -1}), HasSubstr("num_workers -1"));
  EXPECT_THAT(refusal(good, {.num_prefetch = 0}), HasSubstr("num_prefetch 0"));
  EXPECT_THAT(refusal(good, {.exact = true, .drop_last = true}), HasSubstr("drop_last leaves samples out"));
  EXPECT_THAT(refusal(good, {}, {0, 1, 8}), HasSubstr("index 8 at place 2 is outside the 8 samples"));
  EXPECT_THAT(refusal(good, {}, {-1}), HasSubstr("index -1 at place 0"));
  EXPECT_THAT(refusal(good, {.batch_size = 4}, {0, 1, 2, 3, 4}, 3), HasSubstr("first_batch 3 of 2 batches"));
}

TEST(Loader, RefusesPositionsThatNoEpochHas) {
  Loader loader(images(10), {.batch_size = 4});
  for (const LoaderPosition position : {LoaderPosition{-1, 0}, {0, -1}, {0, 11}, {0, 14, -1, 4}}) {
    EXPECT_THROW(loader.resume(position), Error) << text_of(position);
  }
  EXPECT_THROW(loader.epoch(-1), Error);
  loader.resume({0, 10});
  loader.resume({0, 12, -1, 4});  // of an older version, in the last batch
  EXPECT_EQ(text_of(loader.position()), "epoch 0, sample 10");
}

TEST(Loader, RefusesAGpuThatIsNotThere) {
  if (at::accelerator::deviceCount() > 0) GTEST_SKIP() << "there is a GPU";
  try {
    Loader(images(4), {.device = c10::Device(c10::kCUDA, 0)});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), HasSubstr("cuda:0 is requested, but libtorch sees no GPU"));
  }
}

}  // namespace
}  // namespace yoke::train
