#include "yoke/train/shard/sharded_checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;

class ShardedCheckpointFiles : public testing::Test {
 protected:
  /// 12 elements, of which each rank has its share, and a scalar that all have.
  static TensorSlices slices(const World& world, int64_t value) {
    const int64_t length = 12 / world.size();
    return {{"w", {4, 3}, length * world.rank(), at::arange(length).add(length * world.rank() + value)},
            {"s", {}, 0, at::full({1}, value)}};
  }

  void save(int64_t num_ranks, int64_t step, const fs::path& folder) {
    run_ranks(num_ranks, [&](World& world) { write_sharded_checkpoint(world, folder, step, slices(world, step)); });
  }
  void save(int64_t num_ranks, int64_t step) { save(num_ranks, step, folder_); }

  std::vector<fs::path> shards() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".safetensors") result.push_back(entry.path());
    }
    std::ranges::sort(result);
    return result;
  }

  std::string refusal(ErrorCode code = ErrorCode::kDataLoss) const {
    try {
      read_whole(ShardedCheckpoint(folder_).source());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "nothing was thrown";
  }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ShardedCheckpointFiles, EachElementIsWrittenOnceAndTheNewestSaveCounts) {
  for (const int64_t num_ranks : {4, 2, 2, 1, 3}) {
    save(num_ranks, num_ranks + 100);
    EXPECT_EQ(shards().size(), static_cast<size_t>(num_ranks)) << "those of the save before are gone";
    const ShardedCheckpoint checkpoint(folder_);
    EXPECT_EQ(checkpoint.step(), num_ranks + 100);
    const auto whole = read_whole(checkpoint.source());
    ASSERT_EQ(whole.size(), 2u);
    EXPECT_TRUE(at::equal(whole.at("w"), at::arange(12).add(num_ranks + 100).view({4, 3})));
    EXPECT_EQ(whole.at("s").item<int64_t>(), num_ranks + 100);
    size_t copies_of_s = 0;
    for (const auto& path : shards()) copies_of_s += read_safetensors(path).tensors.contains("s") ? 1 : 0;
    EXPECT_EQ(copies_of_s, 1u);
  }
}

TEST_F(ShardedCheckpointFiles, AnyRangeIsRead) {
  save(4, 0);
  const auto source = ShardedCheckpoint(folder_).source();
  for (int64_t first = 0; first <= 12; ++first) {
    for (int64_t length = 0; first + length <= 12; ++length) {
      EXPECT_TRUE(at::equal(source.read("w", first, length), at::arange(first, first + length)));
    }
  }
}

TEST_F(ShardedCheckpointFiles, DamageIsNamed) {
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("there is no sharded checkpoint"));
  save(2, 7);
  const auto paths = shards();
  const auto first = read_file(paths[0]), second = read_file(paths[1]);
  const auto index = read_file(folder_ / "index.json");
  const auto restore = [&] {
    write(paths[0], first), write(paths[1], second), write(folder_ / "index.json", index);
    EXPECT_EQ(refusal(), "nothing was thrown");
  };

  fs::remove(paths[1]);
  EXPECT_THAT(refusal(), HasSubstr(paths[1].filename().string() + ": shard 2 of 2 is missing"));
  restore();
  write(paths[1], first);  // the right save, the wrong rank
  EXPECT_THAT(refusal(), HasSubstr("element 6 of 'w' is in no shard, or in two"));
  restore();
  write(paths[1], second.substr(0, second.size() - 1));
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
  restore();
  auto changed = second;
  changed.back() ^= 1;
  write(paths[1], changed);
  EXPECT_THAT(refusal(), HasSubstr("'w' is damaged: its checksum differs"));
  restore();
  write(folder_ / "index.json", index.substr(0, index.size() / 2));
  EXPECT_THAT(refusal(), HasSubstr("index.json: it is torn or changed"));
  restore();
  const auto with = [&](const std::string& old_text, const std::string& new_text) {
    auto text = index;
    text.replace(text.find(old_text), old_text.size(), new_text);
    write(folder_ / "index.json", text);
  };
  with("\"step\": 7", "\"step\": 8");
  EXPECT_THAT(refusal(), HasSubstr("index.json: its checksum differs"));
  restore();
  with("\"shard-", "\"../shard-");
  EXPECT_THAT(refusal(), HasSubstr("index.json: its checksum differs"));
  restore();
  with("\"version\": 1", "\"version\": 2");
  EXPECT_THAT(refusal(ErrorCode::kFailedPrecondition), HasSubstr("format 2 is newer"));

  restore();
  auto table = second;
  const auto place = table.find("\\\"first\\\":6");
  ASSERT_NE(place, std::string::npos);
  table[place + std::string_view("\\\"first\\\":").size()] = '5';
  write(paths[1], table);
  EXPECT_THAT(refusal(), HasSubstr("the checksum of its table of slices differs"));

  const auto other = folder_ / "other";
  restore();
  save(2, 9, other);
  for (const auto& entry : fs::directory_iterator(other)) {
    if (entry.path().filename().string().find("00001-of") != std::string::npos) {
      fs::copy_file(entry.path(), paths[1], fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_THAT(refusal(), HasSubstr("it is of another save (step 9) than the index (step 7)"));
}

TEST_F(ShardedCheckpointFiles, ASaveThatFailsLeavesTheOneBeforeAndSaysSoOnAllRanks) {
  save(2, 1);
  std::mutex mutex;
  std::vector<std::string> messages;
  run_ranks(2, [&](World& world) {
    auto own = slices(world, 2);
    // Rank 1's slice is of a dtype that safetensors has not; a full disk fails in the same place.
    if (world.rank() == 1) own.push_back({"z", {1}, 0, at::zeros({1}, at::kComplexDouble)});
    try {
      write_sharded_checkpoint(world, folder_, 2, own);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages.push_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_THAT(
      messages,
      testing::Contains(HasSubstr("the checkpoint of step 2 was not written, and what was there still is: rank 1: ")));
  EXPECT_EQ(ShardedCheckpoint(folder_).step(), 1);
  EXPECT_EQ(refusal(), "nothing was thrown");
  EXPECT_EQ(shards().size(), 2u) << "the failed save's files are gone";
  write(folder_ / "shard-0123456789abcdef-00000-of-00001.safetensors", "of a save that was killed");
  run_ranks(2, [&](World& world) {  // and before anything is written, so that there is room
    auto own = slices(world, 2);
    if (world.rank() == 1) own.push_back({"z", {1}, 0, at::zeros({1}, at::kComplexDouble)});
    EXPECT_THROW(write_sharded_checkpoint(world, folder_, 2, own), Error);
  });
  EXPECT_EQ(shards().size(), 2u);
  EXPECT_EQ(refusal(), "nothing was thrown");
}

TEST_F(ShardedCheckpointFiles, WhatOneRankCannotDescribeIsAnErrorOnAll) {
  std::atomic<int> count = 0;
  run_ranks(2, [&](World& world) {
    auto own = slices(world, 2);
    if (world.rank() == 1) own.push_back({"bad\xff", {1}, 0, at::zeros({1})});
    EXPECT_ANY_THROW(write_sharded_checkpoint(world, folder_, 2, own));
    world.barrier();
    ++count;
  });
  EXPECT_EQ(count, 2);
}

TEST_F(ShardedCheckpointFiles, ATensorThatWasReadOutlivesTheCheckpoint) {
  save(1, 5);
  const auto values = ShardedCheckpoint(folder_).source().read("w", 0, 12);
  EXPECT_TRUE(at::equal(values, at::arange(12).add(5)));
}

TEST_F(ShardedCheckpointFiles, AnotherModelIsRefusedByItsFirstDifference) {
  save(2, 1);
  const auto values = at::zeros({12}, at::kLong);
  const ShardedCheckpoint checkpoint(folder_);
  const auto load = [&](const TensorSlices& into) -> std::string {
    try {
      load_slices(checkpoint.source(), into);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  const TensorSlice scalar{"s", {}, 0, at::zeros({1}, at::kLong)};
  EXPECT_THAT(load({{"w", {3, 4}, 0, values}, scalar}),
              HasSubstr("is of another model: the first difference is 'w', Long [4, 3] there and Long [3, 4]"));
  EXPECT_THAT(load({scalar}), HasSubstr("'w', which the model lacks"));
  EXPECT_EQ(load({{"w", {4, 3}, 0, values}, scalar}), "nothing was thrown");
}

void fail_on_warning(const std::string& message) { ADD_FAILURE() << message; }

/// What load_latest finds on two ranks, which must be the same.
std::optional<ShardedCheckpoint> load(const ShardedCheckpointFolder& folder, const Warn& warn = fail_on_warning) {
  std::mutex mutex;
  std::optional<ShardedCheckpoint> found;
  std::vector<int64_t> steps;
  run_ranks(2, [&](World& world) {
    auto own = folder.load_latest(world, warn);
    const std::lock_guard lock(mutex);
    steps.push_back(own ? own->step() : -1);
    if (own) found = own;
  });
  EXPECT_EQ(steps.front(), steps.back());
  return found;
}

TEST_F(ShardedCheckpointFiles, TheLastAndTheBestAreKept) {
  const ShardedCheckpointFolder folder(folder_, {.keep = 2, .keep_best = 1, .metric = "loss"});
  EXPECT_FALSE(load(folder));
  const std::vector<std::string> losses = {"3", "0.5", "2", "nan", "4"};
  for (int64_t step = 1; step <= 5; ++step) {
    run_ranks(2, [&](World& world) {
      folder.save(world, step, slices(world, step), {{"loss", losses[static_cast<size_t>(step - 1)]}});
    });
    EXPECT_EQ(load(folder)->step(), step);
  }
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(folder.best_step(), 2);
  EXPECT_EQ(read_whole(ShardedCheckpoint(folder.path_of(2)).source()).at("s").item<int64_t>(), 2);

  fs::create_directories(folder.path_of(9));  // as a save that was killed leaves it
  write(folder.path_of(9) / "shard-0123456789abcdef-00000-of-00002.safetensors", "torn");
  fs::create_directories(folder.path_of(8));
  write(folder.path_of(8) / "notes.txt", "somebody's");
  EXPECT_EQ(load(folder)->step(), 5);
  run_ranks(2, [&](World& world) {
    EXPECT_THROW(folder.save(world, 6, slices(world, 6), {{"loss", world.rank() == 0 ? "1" : "low"}}), Error);
  });
  run_ranks(2, [&](World& world) { folder.save(world, 6, slices(world, 6)); });
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2, 5, 6}));
  EXPECT_FALSE(fs::exists(folder.path_of(9)));
  EXPECT_TRUE(fs::exists(folder.path_of(8) / "notes.txt"));
}

TEST_F(ShardedCheckpointFiles, ADamagedOneIsPassedOver) {
  const ShardedCheckpointFolder folder(folder_);
  for (int64_t step = 1; step <= 2; ++step) {
    run_ranks(2, [&](World& world) { folder.save(world, step, slices(world, step)); });
  }
  for (const auto& entry : fs::directory_iterator(folder.path_of(2))) {
    if (entry.path().filename().string().find("00001-of") != std::string::npos) fs::remove(entry.path());
  }
  std::string warning;
  const auto found = load(folder, [&](const std::string& message) { warning += message; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), 1);
  EXPECT_THAT(warning, HasSubstr("shard 2 of 2 is missing"));

  fs::rename(folder.path_of(1), folder.path_of(3));
  run_ranks(2, [&](World& world) {
    try {
      folder.load_latest(world, [](const std::string&) {});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("it holds step 1, not the step of its name"));
    }
  });
}

/// Two ranks that save until they are killed, and tell each step that is safely on disk.
[[noreturn]] void save_without_end(const fs::path& path, int64_t first) {
  const ShardedCheckpointFolder folder(path, {.keep = 1});
  run_ranks(2, [&](World& world) {
    for (int64_t step = first;; ++step) {
      folder.save(world, step, {{"w", {20'000}, 10'000 * world.rank(), at::full({10'000}, step)}});
      if (world.rank() == 0) std::printf("saved %lld\n", static_cast<long long>(step)), std::fflush(stdout);
    }
  });
  std::abort();
}

TEST_F(ShardedCheckpointFiles, SigkillAtAnyMoment) {
  if (const char* path = std::getenv("YOKE_TEST_FOLDER")) save_without_end(path, std::stoll(std::getenv("YOKE_STEP")));
  const ShardedCheckpointFolder folder(folder_, {.keep = 1});
  const int num_kills = std::getenv("YOKE_LONG") != nullptr ? 1000 : 10;
  std::mt19937 random(1);
  int64_t newest = 0;
  for (int i = 0; i < num_kills; ++i) {
    test::CommandOptions how;
    how.argv = {"/proc/self/exe", "--gtest_filter=ShardedCheckpointFiles.SigkillAtAnyMoment"};
    how.environment = {{"YOKE_TEST_FOLDER", folder_.string()}, {"YOKE_STEP", std::to_string(newest + 1)}};
    test::Command writer(how);
    ASSERT_TRUE(writer.wait_for_output("saved ")) << writer.err();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    writer.signal(SIGKILL);
    const auto out = writer.wait().out;
    const auto told = std::stoll(out.substr(out.rfind("saved ") + 6));
    const auto found = load(folder);
    ASSERT_TRUE(found);
    ASSERT_GE(found->step(), told) << "a save that had returned is gone";
    newest = found->step();
    ASSERT_TRUE(at::equal(read_whole(found->source()).at("w"), at::full({20'000}, newest)));
    ASSERT_LE(std::distance(fs::directory_iterator(folder_), {}), 3) << "what was left behind is not removed";
  }
}

}  // namespace
}  // namespace yoke::train
