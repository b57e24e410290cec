// Tests that a run resumes in mid-epoch on any number of ranks, with any batch size: each sample is trained once.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/run/detail/run_position.h"
#include "yoke/train/run/run.h"

namespace yoke::train::resume_anywhere {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kNumSamples = 97, kEpochs = 3;

struct Ids {
  int64_t size() const { return kNumSamples; }
  at::Tensor sample(int64_t i) const { return at::full({}, i, at::kLong); }
};

struct Killed {};

/// What a job of some ranks is told.
struct Job {
  int64_t num_ranks = 1, batch_size = 4;
  int64_t kill_at = -1;  ///< The step in whose body every rank throws.
  bool drop_last = false;
  bool exact = false;
};

/// The samples of each step and rank. A resumed run removes those of the steps that it repeats.
class Diary {
 public:
  void begin(int64_t step) {
    const std::lock_guard lock(mutex_);
    steps_.erase(steps_.lower_bound(step), steps_.end());
  }
  void add(int64_t step, int64_t epoch, int64_t rank, const at::Tensor& ids) {
    const std::lock_guard lock(mutex_);
    auto& at = steps_[step];
    at.epoch = epoch;
    at.ranks[rank] = {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
  }
  /// The samples of an epoch in the order of their positions: those of each step's ranks in turn.
  std::vector<int64_t> epoch(int64_t number) const {
    std::vector<int64_t> result;
    for (const auto& [_, at] : steps_) {
      if (at.epoch != number) continue;
      size_t longest = 0;
      for (const auto& [rank, ids] : at.ranks) longest = std::max(longest, ids.size());
      const auto first = std::ssize(result), num_ranks = std::ssize(at.ranks);
      for (size_t i = 0; i < longest; ++i) {
        for (int64_t place = 0; place < num_ranks; ++place) {  // number n of the order is rank n % num_ranks' own
          const auto& ids = at.ranks.at((first + place) % num_ranks);
          if (i < ids.size()) result.push_back(ids[i]);
        }
      }
    }
    return result;
  }

 private:
  struct Step {
    int64_t epoch = 0;
    std::map<int64_t, std::vector<int64_t>> ranks;
  };
  std::mutex mutex_;
  std::map<int64_t, Step> steps_;
};

class ResumeAnywhere : public testing::Test {
 protected:
  RunOptions options(bool resume) const {
    return {.folder = temporary_.path("run"),
            .resume = resume,
            .save_every = 1,
            .checkpoints = {.warn = [](const std::string& message) {
              if (message.find("ranks") == message.npos)
                ADD_FAILURE() << message;  // another number of ranks is a warning
            }}};
  }

  /// Runs jobs in one folder, one after the other. Each step saves a checkpoint, except the one that is killed.
  void run(const std::vector<Job>& jobs) {
    for (const auto& job : jobs) {
      const auto body = [&](dist::World& world) { train(world, job, &job != jobs.data()); };
      if (job.kill_at >= 0) {
        EXPECT_THROW(fakes::run_ranks(job.num_ranks, body), Killed);
      } else {
        fakes::run_ranks(job.num_ranks, body);
      }
    }
  }

  void train(dist::World& world, const Job& job, bool resume) {
    yoke::train::Run run(world, options(resume));
    Loader loader(Ids(), world,
                  {.batch_size = job.batch_size, .seed = 6, .exact = job.exact, .drop_last = job.drop_last});
    auto epochs = run.epochs(loader, kEpochs);
    if (world.rank() == 0) diary_.begin(run.step());
    world.barrier();
    const int64_t first_step = run.step();
    for (auto& epoch : epochs) {
      for (auto& batch : epoch) {
        EXPECT_EQ(run.schedule_step() / loader.num_batches(), run.epoch());
        if (run.step() == job.kill_at) throw Killed();
        diary_.add(run.step(), run.epoch(), world.rank(), batch);
        run.log("id", batch.to(at::kDouble).mean(), batch.size(0));
      }
      EXPECT_EQ(run.schedule_step() % loader.num_batches(), 0);
      run.log("epoch_number", static_cast<double>(run.epoch() + 1));
    }
    EXPECT_TRUE(resume || run.schedule_step() == run.step());
    EXPECT_EQ(run.schedule_step(), kEpochs * loader.num_batches());
    EXPECT_GT(run.step(), first_step);
  }

  /// Oracle: the order of one process, in which each sample is once.
  void expect_each_sample_once(const std::string& what) const {
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const DistributedSampler whole({.num_samples = kNumSamples, .seed = 6});
      EXPECT_EQ(diary_.epoch(epoch), whole.indices(epoch)) << what << ", epoch " << epoch;
    }
    // The mean of each epoch is of all samples, by whichever jobs.
    std::istringstream file(read_file(fs::path(temporary_.path("run")) / "metrics.csv"));
    std::vector<std::string> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(line.substr(0, 6));
    EXPECT_THAT(rows, ElementsAre("epoch,", "1,48,1", "2,48,2", "3,48,3")) << what;
    fs::remove_all(temporary_.path("run"));
  }

  const test::TemporaryFolder temporary_;
  Diary diary_;
};

TEST_F(ResumeAnywhere, EachSampleIsTrainedOnceWhateverRanksGoOn) {
  // The last jobs of each row take one sample on one rank after the other, so an epoch's end is exact.
  const Job last{.num_ranks = 1, .batch_size = 7};
  int64_t number = 0;
  for (const auto& jobs : std::vector<std::vector<Job>>{
           {{.num_ranks = 2, .batch_size = 5, .kill_at = 3}, last},
           {{.num_ranks = 2, .batch_size = 5, .kill_at = 3}, {.num_ranks = 3, .batch_size = 4, .kill_at = 5}, last},
           {{.num_ranks = 3, .batch_size = 4, .kill_at = 1}, {.num_ranks = 4, .batch_size = 2, .kill_at = 7}, last},
           {{.num_ranks = 1, .batch_size = 1, .kill_at = 90}, {.num_ranks = 3, .batch_size = 2, .kill_at = 91}, last},
           {{.num_ranks = 1, .batch_size = 10, .kill_at = 25}, {.num_ranks = 5, .batch_size = 1, .kill_at = 27}, last},
           {{.num_ranks = 1, .batch_size = 97, .kill_at = 2},
            {.num_ranks = 4, .batch_size = 24, .kill_at = 3},
            last}}) {
    run(jobs);
    expect_each_sample_once(fmt::format("row {}", number++));
  }
}

TEST_F(ResumeAnywhere, WithExactRanksShareTheEndOfAnEpoch) {
  run({{.num_ranks = 2, .batch_size = 6, .kill_at = 4, .exact = true},
       {.num_ranks = 3, .batch_size = 5, .kill_at = 9, .exact = true},
       {.num_ranks = 4, .batch_size = 3, .kill_at = -1, .exact = true}});
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto ids = diary_.epoch(epoch);
    EXPECT_EQ(ids.size(), static_cast<size_t>(kNumSamples));
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), static_cast<size_t>(kNumSamples));
  }
}

// 95 samples are read, and 2 are left: on 3 ranks, one would have no batch, and the others would wait for it.
TEST_F(ResumeAnywhere, WithExactFewerSamplesThanRanksAreRefused) {
  run({{.num_ranks = 1, .batch_size = 5, .kill_at = 19, .exact = true}});
  fakes::run_ranks(3, [&](dist::World& world) {
    yoke::train::Run run(world, options(true));
    Loader loader(Ids(), world, {.batch_size = 5, .seed = 6, .exact = true});
    EXPECT_THAT(message_of([&] { run.epochs(loader, kEpochs); }),
                HasSubstr("what is left of the interrupted epoch has 1 batches on rank 0 and 0 on rank 1, which would "
                          "wait for each other: resume on fewer ranks"));
  });
}

// 96 samples are read. The last one fills no batch of the ranks that go on, but the epoch still has its end.
TEST_F(ResumeAnywhere, WithDropLastAnEpochMayEndWithoutAnotherBatch) {
  run({{.num_ranks = 1, .batch_size = 1, .kill_at = 96, .drop_last = true},
       {.num_ranks = 2, .batch_size = 4, .kill_at = -1, .drop_last = true}});
  EXPECT_EQ(diary_.epoch(0).size(), 96u);
  EXPECT_EQ(diary_.epoch(1).size(), 96u);
  std::istringstream file(read_file(fs::path(temporary_.path("run")) / "metrics.csv"));
  std::vector<std::string> epochs;
  for (std::string line; std::getline(file, line);) epochs.push_back(line.substr(0, line.find(',')));
  EXPECT_THAT(epochs, ElementsAre("epoch", "1", "2", "3"));
}

TEST_F(ResumeAnywhere, OtherSamplesAreRefused) {
  run({{.num_ranks = 2, .batch_size = 5, .kill_at = 3}});
  struct Fewer {
    int64_t size() const { return kNumSamples - 1; }
    at::Tensor sample(int64_t i) const { return at::full({}, i, at::kLong); }
  };
  fakes::run_ranks(1, [&](dist::World& world) {
    yoke::train::Run run(world, options(true));
    Loader loader(Fewer(), world, {.batch_size = 4, .seed = 6});
    EXPECT_THAT(
        message_of([&] { run.epochs(loader, kEpochs); }),
        HasSubstr("samples_per_epoch is 96, and that of the run to resume was 97: resume with the same samples"));
  });
}

// A loader of one's own, whose epochs have ten batches.
struct Countdown {
  std::vector<LoaderPosition> resumed;
  int64_t num_batches() const { return 10; }
  struct Batches {
    std::vector<at::Tensor> left;
    auto begin() { return left.begin(); }
    auto end() { return left.end(); }
  };
  Batches epoch(int64_t) {
    Batches result;
    for (int64_t batch = resumed.empty() ? 0 : resumed.back().sample; batch < 10; ++batch) {
      result.left.push_back(at::full({1}, batch, at::kLong));
    }
    resumed.clear();
    return result;
  }
  void resume(const LoaderPosition& position) { resumed.push_back(position); }
};

TEST_F(ResumeAnywhere, ALoaderOfOnesOwnIsToldItsBatch) {
  std::vector<int64_t> seen;
  const auto train = [&](bool resume, int64_t kill_at) {
    fakes::run_ranks(1, [&](dist::World& world) {
      yoke::train::Run run(world, options(resume));
      Countdown loader;
      for (auto& epoch : run.epochs(loader, 2)) {
        for (auto& batch : epoch) {
          if (run.step() == kill_at) throw Killed();
          seen.push_back(batch.item<int64_t>());
        }
      }
    });
  };
  EXPECT_THROW(train(false, 13), Killed);
  train(true, -1);
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 20; ++i) expected.push_back(i % 10);
  EXPECT_EQ(seen, expected);
}

// Checkpoints of older versions say how many steps an epoch has and how many samples a step, and nothing more.
TEST(RunPosition, OfOlderCheckpointsFollowsFromTheStep) {
  const detail::RunLoader loader{.num_batches = 20, .samples_per_batch = 5, .samples_per_epoch = 97};
  const StringMap old = {{"steps_per_epoch", "13"}, {"samples_per_batch", "8"}};
  const auto position = detail::saved_position(old, 2 * 13 + 4, loader);
  EXPECT_EQ(text_of(position), "epoch 2, sample 32");
  EXPECT_EQ(position.samples_per_batch, 8);
  EXPECT_EQ(detail::other_samples_per_batch(old, loader), 8);
  EXPECT_NO_THROW(detail::require_same_samples(old, loader));
  for (const int64_t num_samples : {96, 97, 111, 112}) {  // with 13 steps, 97 to 104, or up to 111 with drop_last
    auto other = loader;
    other.samples_per_epoch = num_samples;
    const auto check = [&] { detail::require_same_samples(old, other); };
    if (num_samples == 97 || num_samples == 111) {
      EXPECT_NO_THROW(check());
    } else {
      EXPECT_THAT(message_of(check), HasSubstr("samples_per_epoch is"));
    }
  }
  EXPECT_THAT(message_of([&] {
                detail::require_same_samples({{"steps_per_epoch", "19"}, {"samples_per_batch", "5"}}, loader);
              }),
              HasSubstr("steps_per_epoch is 20, and that of the run to resume was 19"));
  EXPECT_EQ(text_of(detail::saved_position({}, 45, loader)), "epoch 2, sample 25");
  EXPECT_NO_THROW(detail::require_same_samples({}, loader));
  EXPECT_EQ(text_of(detail::saved_position({{"run.position", "epoch 1 from item 90, sample 12"}}, 7, loader)),
            "epoch 1 from item 90, sample 12");
  EXPECT_EQ(text_of(detail::next_epoch({.epoch = 1, .sample = 12, .first_item = 90})),
            "epoch 2 from item 102, sample 0");
}

}  // namespace
}  // namespace yoke::train::resume_anywhere
