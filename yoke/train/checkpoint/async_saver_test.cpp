#include "yoke/train/checkpoint/async_saver.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class AsyncSaverTest : public testing::Test {
 protected:
  Warn collect() {
    return [this](const std::string& message) { warnings_.push_back(message); };
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::vector<std::string> warnings_;
};

// Oracle: the file that a save in place writes, whatever the training does after save() has returned.
TEST_F(AsyncSaverTest, WritesWhatASaveInPlaceWrites) {
  CheckpointState state{.tensors = {{"w", at::arange(100'000, at::kFloat).reshape({100, 1000}).t()},
                                    {"half", at::ones({3}, at::kBFloat16)},
                                    {"n", at::full({}, 7, at::kLong)},
                                    {"empty", at::ones({0, 2})}},
                        .metadata = {{"epoch", "1"}}};
  const CheckpointFolder in_place(folder_ / "a"), behind(folder_ / "b");
  AsyncSaver saver(behind, collect());
  EXPECT_FALSE(saver.busy());
  for (int64_t step = 1; step <= 3; ++step) {
    in_place.save(step, state);
    saver.save(step, state);
    state.tensors.at("w").mul_(-1);
    state.tensors.at("half").add_(1);
    state.tensors["n"] = at::full({step}, 1, at::kLong);  // another shape: another buffer
    state.metadata["epoch"] = std::to_string(step + 1);
  }
  saver.finish();
  EXPECT_FALSE(saver.busy());
  EXPECT_THAT(behind.steps(), ElementsAre(2, 3));
  for (const int64_t step : behind.steps()) {
    EXPECT_EQ(read_file(behind.path_of(step)), read_file(in_place.path_of(step))) << step;
  }
  const auto progress = saver.progress();
  EXPECT_EQ(progress.step, 3);
  EXPECT_TRUE(progress.done);
  EXPECT_EQ(progress.num_bytes, static_cast<int64_t>(fs::file_size(behind.path_of(3))));
  EXPECT_EQ(progress.written_bytes, progress.num_bytes);
  EXPECT_GT(progress.writing.count(), 0);
}

TEST_F(AsyncSaverTest, TheDestructorWaits) {
  const CheckpointFolder folder(folder_);
  { AsyncSaver(folder, collect()).save(5, {.tensors = {{"w", at::ones({1 << 20})}}}); }
  EXPECT_THAT(folder.steps(), ElementsAre(5));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AsyncSaverTest, AnErrorComesOnceWithTheNextCall) {
  const CheckpointFolder folder(folder_ / "out");
  const CheckpointState state{.tensors = {{"w", at::ones({2})}}};
  AsyncSaver saver(folder, collect());
  const auto block = [&] {  // a file where the folder should be
    fs::remove_all(folder.folder());
    replace_file(folder.folder(), [](int) {});
  };
  const auto expect_error = [](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "threw nothing";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("making the folder"));
    }
  };
  block();
  saver.save(1, state);
  expect_error([&] { saver.save(2, state); });
  fs::remove(folder.folder());
  saver.save(3, state);
  saver.finish();
  EXPECT_THAT(folder.steps(), ElementsAre(3));
  block();
  saver.save(4, state);
  expect_error([&] { saver.finish(); });
  saver.finish();
  EXPECT_TRUE(saver.progress().done);

  // What the format refuses is an error of the writing too, with its name.
  fs::remove(folder.folder());
  const auto sparse = at::ones({2, 2}).to_sparse();
  saver.save(5, {.tensors = {{"sparse", sparse}}});
  try {
    saver.finish();
    ADD_FAILURE() << "threw nothing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'sparse' is not strided"));
  }
  saver.save(6, {.tensors = {{"sparse", at::full({2, 2}, 2.0)}}});
  saver.finish();
  EXPECT_TRUE(sparse.to_dense().equal(at::ones({2, 2}))) << "the caller's tensor is no buffer";
}

TEST_F(AsyncSaverTest, AnErrorThatNobodyAskedForIsTold) {
  replace_file(folder_ / "out", [](int) {});
  { AsyncSaver(CheckpointFolder(folder_ / "out"), collect()).save(1, {}); }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("a checkpoint was not written: making the folder")));
}

}  // namespace
}  // namespace yoke::train
