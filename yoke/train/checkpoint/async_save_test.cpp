#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class AsyncSave : public testing::Test {
 protected:
  Warn collect() {
    return [this](const std::string& message) { warnings_.push_back(message); };
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::vector<std::string> warnings_;
};

std::string bytes_of(const CheckpointFolder& folder, int64_t step) { return read_file(folder.path_of(step)); }

// Oracle: the file that save() writes. Changes by the training after save_async() has returned must not reach the file.
TEST_F(AsyncSave, WritesWhatASaveInPlaceWrites) {
  fakes::run_ranks(1, [&](dist::World& world) {
    auto w = at::arange(100'000, at::kFloat).reshape({100, 1000}).t(), half = at::ones({3}, at::kBFloat16),
         n = at::full({}, 7, at::kLong), empty = at::ones({0, 2});
    int64_t epoch = 1;
    TrainState state(world);
    state.add("w", w).add("half", half).add("n", n).add("empty", empty).add("epoch", epoch);
    CheckpointFolder in_place(folder_ / "a"), behind(folder_ / "b", {.warn = collect()});
    EXPECT_FALSE(behind.busy());
    for (int64_t step = 1; step <= 3; ++step) {
      in_place.save(step, state, {{"loss", "0.5"}});
      behind.save_async(step, state, {{"loss", "0.5"}});
      w.mul_(-1);
      half.add_(1);
      n = at::full({step}, 1, at::kLong);  // a different shape needs a different buffer
      epoch = step + 1;
    }
    behind.finish();
    EXPECT_FALSE(behind.busy());
    EXPECT_THAT(behind.steps(), ElementsAre(2, 3));
    for (const int64_t step : behind.steps()) EXPECT_EQ(bytes_of(behind, step), bytes_of(in_place, step)) << step;
    const auto progress = behind.progress();
    EXPECT_EQ(progress.step, 3);
    EXPECT_TRUE(progress.done);
    EXPECT_EQ(progress.num_bytes, static_cast<int64_t>(fs::file_size(behind.path_of(3))));
    EXPECT_EQ(progress.written_bytes, progress.num_bytes);
    EXPECT_GT(progress.writing.count(), 0);
  });
  EXPECT_TRUE(warnings_.empty());
}

// Saves whole and divided tensors while the training runs its collectives.
TEST_F(AsyncSave, AllRanksWriteTheirPartsBehindTheTraining) {
  for (const bool is_sharded : {false, true}) {
    const auto path = folder_ / (is_sharded ? "sharded" : "whole");
    fakes::run_ranks(3, [&](dist::World& world) {
      auto part = at::ones({1000});
      if (is_sharded) mark_sharded(part, {.shape = {3000}, .first = 1000 * world.rank(), .group = &world});
      TrainState state(world);
      state.add("t", part).add_generators();
      CheckpointFolder folder(path, {.keep = 1});
      const auto sum = at::full({1}, 0.0);
      for (int64_t step = 1; step <= 5; ++step) {
        part.fill_(static_cast<double>(step));
        folder.save_async(step, state);
        part.zero_();
        for (int i = 0; i < 50; ++i) world.all_reduce(sum.fill_(1));
        EXPECT_EQ(sum.item<double>(), 3);
      }
      folder.finish();
      EXPECT_FALSE(folder.busy());
      EXPECT_THAT(folder.steps(), ElementsAre(5)) << "on every rank once finish() has returned";
      const auto checkpoint = read_checkpoint(folder.path_of(5));
      EXPECT_EQ(checkpoint.num_shards, is_sharded ? 3 : 0);
      EXPECT_TRUE(read_whole(checkpoint.source, "t").equal(at::full({is_sharded ? 3000 : 1000}, 5.0)));
    });
  }
}

TEST_F(AsyncSave, TheDestructorWaits) {
  fakes::run_ranks(1, [&](dist::World& world) {
    auto w = at::ones({1 << 20});
    TrainState state(world);
    state.add("w", w);
    { CheckpointFolder(folder_, {.warn = collect()}).save_async(5, state); }
    EXPECT_THAT(CheckpointFolder(folder_).steps(), ElementsAre(5));
  });
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AsyncSave, AnErrorComesOnceWithTheNextCallOnAllRanks) {
  fakes::run_ranks(2, [&](dist::World& world) {
    auto w = at::ones({2});
    TrainState state(world);
    state.add("w", w);
    CheckpointFolder folder(folder_ / "out", {.warn = [](const std::string& text) { ADD_FAILURE() << text; }});
    const auto on_rank_0 = [&](const auto& body) {
      world.barrier();
      if (world.rank() == 0) body();
      world.barrier();
    };
    const auto block = [&] {  // puts a file at the folder's path
      fs::remove_all(folder.folder());
      replace_file(folder.folder(), [](int) {});
    };
    const auto unblock = [&] { fs::remove(folder.folder()); };
    const auto expect_error = [&](const std::string& text, const auto& call) {
      try {
        call();
        ADD_FAILURE() << "threw nothing on rank " << world.rank();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
        EXPECT_EQ(std::string(error.what()).find("rank 0: ") != std::string::npos, world.rank() == 1) << error.what();
      }
    };
    on_rank_0(block);
    folder.save_async(1, state);
    expect_error("making the folder", [&] { folder.save_async(2, state); });
    on_rank_0(unblock);
    folder.save_async(3, state);
    folder.finish();
    EXPECT_THAT(folder.steps(), ElementsAre(3));
    on_rank_0(block);
    folder.save_async(4, state);
    expect_error("making the folder", [&] { folder.finish(); });
    folder.finish();
    EXPECT_TRUE(folder.progress().done);

    // If the format refuses a tensor, the error comes from the writer, and names the tensor.
    on_rank_0(unblock);
    const auto sparse = at::ones({2, 2}).to_sparse();
    w = sparse;
    folder.save_async(5, state);
    expect_error("tensor 'w' is not strided", [&] { folder.finish(); });
    w = at::full({2, 2}, 2.0);
    folder.save_async(6, state);
    folder.finish();
    EXPECT_TRUE(sparse.to_dense().equal(at::ones({2, 2}))) << "the caller's tensor is no buffer";
  });
}

TEST_F(AsyncSave, AnErrorThatNobodyAskedForIsTold) {
  replace_file(folder_ / "out", [](int) {});
  fakes::run_ranks(1, [&](dist::World& world) {
    const TrainState state(world);
    CheckpointFolder(folder_ / "out", {.warn = collect()}).save_async(1, state);
  });
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("a checkpoint was not written: making the folder")));
}

}  // namespace
}  // namespace yoke::train
