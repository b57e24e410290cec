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
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/detail/sharded_files.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using dist::World;
using fakes::run_ranks;
using testing::HasSubstr;

class ShardedCheckpointFiles : public testing::Test {
 protected:
  /// 12 elements that are divided between ranks, and a scalar that all ranks have.
  struct Tensors {
    at::Tensor w, s;
    Tensors(World& world, int64_t value) : s(at::full({}, value)) {
      const int64_t length = 12 / world.size(), first = length * world.rank();
      w = at::arange(first, first + length).add(value).view({1, length});
      mark_sharded(w, {.shape = {4, 3}, .first = first, .group = &world});
    }
    TrainState state(World& world) {
      TrainState state(world);
      state.add("w", w).add("s", s);
      return state;
    }
  };

  /// Each rank writes the slices that a CheckpointFolder would assign to it.
  static void write_to(World& world, const fs::path& folder, int64_t step, const TensorSlices& slices) {
    const auto plan = plan_slices(world.all_gather_text(describe_slices(slices)));
    write_sharded(world, folder, step, own_slices(slices, plan, world.rank()), {});
  }
  static TensorSlices slices(World& world, int64_t value) {
    Tensors tensors(world, value);
    return tensors.state(world).snapshot().slices;
  }

  void save(int64_t num_ranks, int64_t step, const fs::path& folder) {
    run_ranks(num_ranks, [&](World& world) { write_to(world, folder, step, slices(world, step)); });
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
      read_whole(read_checkpoint(folder_).source);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "nothing was thrown";
  }

  /// Loads on two ranks, checks the values, and returns the step; returns -1 if there is no checkpoint.
  int64_t load(const Warn& warn = [](const std::string& message) { ADD_FAILURE() << message; }) const {
    std::atomic<int64_t> step = -1;
    run_ranks(2, [&](World& world) {
      Tensors tensors(world, -1);
      auto state = tensors.state(world);
      const auto found = CheckpointFolder(folder_, {.warn = warn}).load_latest(state);
      if (!found) return;
      step = found->step;
      EXPECT_TRUE(at::equal(tensors.w, Tensors(world, found->step).w));
      EXPECT_EQ(tensors.s.item<int64_t>(), found->step);
    });
    return step;
  }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ShardedCheckpointFiles, EachElementIsWrittenOnceAndTheNewestSaveCounts) {
  for (const int64_t num_ranks : {4, 2, 2, 1, 3}) {
    save(num_ranks, num_ranks + 100);
    EXPECT_EQ(shards().size(), static_cast<size_t>(num_ranks)) << "those of the save before are gone";
    const auto checkpoint = read_checkpoint(folder_);
    EXPECT_EQ(checkpoint.step, num_ranks + 100);
    EXPECT_EQ(checkpoint.num_shards, num_ranks);
    const auto whole = read_whole(checkpoint.source);
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
  const auto source = read_checkpoint(folder_).source;
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
  write(paths[1], first);  // a shard of the right save, but of the wrong rank
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
    // Rank 1's slice has a dtype that safetensors lacks. A full disk would make the save fail at the same place.
    if (world.rank() == 1) own.push_back({"z", {1}, 0, at::zeros({1}, at::kComplexDouble)});
    try {
      write_to(world, folder_, 2, own);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages.push_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_THAT(messages, testing::Contains(HasSubstr(
                            "the checkpoint of step 2 was not written, and earlier files are unchanged: rank 1: ")));
  EXPECT_EQ(read_checkpoint(folder_).step, 1);
  EXPECT_EQ(refusal(), "nothing was thrown");
  EXPECT_EQ(shards().size(), 2u) << "the failed save's files are gone";
  write(folder_ / "shard-0123456789abcdef-00000-of-00001.safetensors", "of a save that was killed");
  run_ranks(2, [&](World& world) {  // the save first removes that shard, to make room
    auto own = slices(world, 2);
    if (world.rank() == 1) own.push_back({"z", {1}, 0, at::zeros({1}, at::kComplexDouble)});
    EXPECT_THROW(write_to(world, folder_, 2, own), Error);
  });
  EXPECT_EQ(shards().size(), 2u);
  EXPECT_EQ(refusal(), "nothing was thrown");
}

TEST_F(ShardedCheckpointFiles, WhatOneRankCannotDescribeIsAnErrorOnAll) {
  std::atomic<int> count = 0;
  run_ranks(2, [&](World& world) {
    Tensors tensors(world, 2);
    auto state = tensors.state(world);
    auto extra = at::zeros({1}), undefined = at::Tensor();
    EXPECT_ANY_THROW(state.add("bad\xff", extra));
    if (world.rank() == 1) state.add("bad", undefined);
    EXPECT_ANY_THROW(CheckpointFolder(folder_).save(2, state));
    world.barrier();
    ++count;
  });
  EXPECT_EQ(count, 2);
}

TEST_F(ShardedCheckpointFiles, ATensorThatWasReadOutlivesTheCheckpoint) {
  save(1, 5);
  const auto values = read_checkpoint(folder_).source.read("w", 0, 12);
  EXPECT_TRUE(at::equal(values, at::arange(12).add(5)));
}

TEST_F(ShardedCheckpointFiles, AnotherModelIsRefusedByItsFirstDifference) {
  save(2, 1);
  const auto source = read_checkpoint(folder_).source;
  const auto load = [&](const TensorSlices& into) -> std::string {
    try {
      prepare_to_load(source, into)();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto values = at::zeros({12}, at::kLong);
  const TensorSlice scalar{"s", {}, 0, at::zeros({1}, at::kLong)};
  EXPECT_THAT(load({{"w", {3, 4}, 0, values}, scalar}),
              HasSubstr("is of another model: the first difference is 'w', Long [4, 3] there and Long [3, 4]"));
  EXPECT_THAT(load({scalar}), HasSubstr("'w', which the model lacks"));
  EXPECT_EQ(load({{"w", {4, 3}, 0, values}, scalar}), "nothing was thrown");
}

TEST_F(ShardedCheckpointFiles, TheLastAndTheBestAreKept) {
  CheckpointFolder folder(folder_, {.keep = 2, .keep_best = 1, .metric = "loss"});
  const auto save_step = [&](int64_t step, const StringMap& metadata) {
    run_ranks(2, [&](World& world) {
      Tensors tensors(world, step);
      CheckpointFolder(folder_, {.keep = 2, .keep_best = 1, .metric = "loss"})
          .save(step, tensors.state(world), metadata);
    });
  };
  EXPECT_EQ(load(), -1);
  const std::vector<std::string> losses = {"3", "0.5", "2", "nan", "4"};
  for (int64_t step = 1; step <= 5; ++step) {
    save_step(step, {{"loss", losses[static_cast<size_t>(step - 1)]}});
    EXPECT_EQ(load(), step);
  }
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(folder.best_step(), 2);
  EXPECT_EQ(read_whole(read_checkpoint(folder.path_of(2)).source).at("s").item<int64_t>(), 2);

  const auto killed = folder_ / "checkpoint-000000000009", own = folder_ / "checkpoint-000000000008";
  fs::create_directories(killed);  // a folder as a killed save leaves it
  write(killed / "shard-0123456789abcdef-00000-of-00002.safetensors", "torn");
  fs::create_directories(own);
  write(own / "notes.txt", "somebody's");
  EXPECT_EQ(load(), 5);
  run_ranks(2, [&](World& world) {
    Tensors tensors(world, 6);
    CheckpointFolder mine(folder_, {.keep_best = 1, .metric = "loss"});
    EXPECT_THROW(mine.save(6, tensors.state(world), {{"loss", world.rank() == 0 ? "1" : "low"}}), Error);
  });
  save_step(6, {});
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2, 5, 6}));
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(own / "notes.txt"));
}

TEST_F(ShardedCheckpointFiles, ADamagedOneIsPassedOver) {
  const auto path_of = [&](int64_t step) { return CheckpointFolder(folder_).path_of(step); };
  for (int64_t step = 1; step <= 2; ++step) {
    run_ranks(2, [&](World& world) {
      Tensors tensors(world, step);
      CheckpointFolder(folder_).save(step, tensors.state(world));
    });
  }
  for (const auto& entry : fs::directory_iterator(path_of(2))) {
    if (entry.path().filename().string().find("00001-of") != std::string::npos) fs::remove(entry.path());
  }
  std::string warning;
  EXPECT_EQ(load([&](const std::string& message) { warning += message; }), 1);
  EXPECT_THAT(warning, HasSubstr("shard 2 of 2 is missing"));

  fs::rename(path_of(1), folder_ / "checkpoint-000000000003");
  run_ranks(2, [&](World& world) {
    Tensors tensors(world, -1);
    auto state = tensors.state(world);
    try {
      CheckpointFolder(folder_, {.warn = [](const std::string&) {}}).load_latest(state);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("holds step 1, not the step of its name"));
    }
  });
}

TEST_F(ShardedCheckpointFiles, RanksThatSeeOtherFoldersOrStepsAreTold) {
  const auto other = folder_ / "elsewhere", own = folder_ / "own";
  const auto save_on = [&](World& world, const fs::path& path, int64_t step) {
    Tensors tensors(world, 1);
    return CheckpointFolder(path, {.keep = 1}).save(step, tensors.state(world));
  };
  run_ranks(2, [&](World& world) { save_on(world, own, 1); });
  run_ranks(2, [&](World& world) {
    EXPECT_THROW(save_on(world, own, 2 + world.rank()), Error);
    EXPECT_THROW(save_on(world, world.rank() == 0 ? own : other, 2), Error);
  });
  EXPECT_EQ(CheckpointFolder(own).steps(), (std::vector<int64_t>{1})) << "the good one is not pruned";
  EXPECT_EQ(read_checkpoint(CheckpointFolder(own).path_of(1)).num_shards, 2);
  run_ranks(2, [&](World& world) { save_on(world, other, 1); });  // a different save of the same step
  run_ranks(2, [&](World& world) {
    Tensors tensors(world, -1);
    auto state = tensors.state(world);
    EXPECT_THROW(CheckpointFolder(world.rank() == 0 ? own : other).load_latest(state), Error);
    EXPECT_EQ(tensors.s.item<int64_t>(), -1);
  });
}

/// Two ranks save until they are killed, and report each step that is safely on disk.
[[noreturn]] void save_without_end(const fs::path& path, int64_t first, bool is_async) {
  run_ranks(2, [&](World& world) {
    CheckpointFolder folder(path, {.keep = 1});
    auto w = at::full({10'000}, first);
    mark_sharded(w, {.shape = {20'000}, .first = 10'000 * world.rank(), .group = &world});
    TrainState state(world);
    state.add("w", w);
    const auto tell = [&](int64_t step) {
      if (world.rank() == 0) std::printf("saved %lld\n", static_cast<long long>(step)), std::fflush(stdout);
    };
    for (int64_t step = first;; ++step) {
      w.fill_(step);
      if (is_async) {
        folder.save_async(step, state);  // when it returns, the previous step is on disk
        if (step > first) tell(step - 1);
      } else {
        folder.save(step, state);
        tell(step);
      }
    }
  });
  std::abort();
}

class ShardedSaves : public ShardedCheckpointFiles, public testing::WithParamInterface<bool> {};

TEST_P(ShardedSaves, SigkillAtAnyMoment) {
  if (const char* path = std::getenv("YOKE_TEST_FOLDER")) {
    save_without_end(path, std::stoll(std::getenv("YOKE_STEP")), GetParam());
  }
  const int num_kills = std::getenv("YOKE_LONG") != nullptr ? 1000 : 10;
  std::mt19937 random(1);
  int64_t newest = 0;
  for (int i = 0; i < num_kills; ++i) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    test::CommandOptions how;
    how.argv = {"/proc/self/exe", fmt::format("--gtest_filter={}.{}", info->test_suite_name(), info->name())};
    how.environment = {{"YOKE_TEST_FOLDER", folder_.string()}, {"YOKE_STEP", std::to_string(newest + 1)}};
    test::Command writer(how);
    ASSERT_TRUE(writer.wait_for_output("saved ")) << writer.err();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // clock: any moment will do
    writer.signal(SIGKILL);
    const auto out = writer.wait().out;
    const auto told = std::stoll(out.substr(out.rfind("saved ") + 6));
    const CheckpointFolder folder(folder_);
    const auto steps = folder.steps();
    ASSERT_FALSE(steps.empty());
    newest = steps.back();
    ASSERT_GE(newest, told) << "a save that had returned is gone";
    const auto checkpoint = read_checkpoint(folder.path_of(newest));
    ASSERT_EQ(checkpoint.num_shards, 2);
    ASSERT_TRUE(at::equal(read_whole(checkpoint.source, "w"), at::full({20'000}, newest)));
    ASSERT_LE(std::distance(fs::directory_iterator(folder_), {}), 3) << "what was left behind is not removed";
  }
}
INSTANTIATE_TEST_SUITE_P(InPlaceAndBehind, ShardedSaves, testing::Bool(),
                         [](const auto& of) { return of.param ? "Behind" : "InPlace"; });

}  // namespace
}  // namespace yoke::train
