#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstring>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/detail/whole_file.h"
#include "yoke/train/checkpoint/folder_lock.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A training's state, whose values depend on the step.
struct Saved {
  at::Tensor w, flag = at::zeros({2}, at::kBool), n;
  std::string epoch;

  explicit Saved(int64_t step)
      : w(at::full({3, 2}, step, at::kFloat)), n(at::full({}, step, at::kLong)), epoch(std::to_string(step)) {}
  TrainState state(dist::World& world) {
    TrainState state(world);
    state.add("model/w", w).add("model/flag", flag).add("n", n).add("epoch", epoch);
    return state;
  }
};

void save(CheckpointFolder& folder, int64_t step, int64_t value, const StringMap& metadata = {}) {
  fakes::run_ranks(1, [&](dist::World& world) { folder.save(step, Saved(value).state(world), metadata); });
}
void save(CheckpointFolder& folder, int64_t step, const StringMap& metadata = {}) {
  save(folder, step, step, metadata);
}

void write_file(const fs::path& path, int64_t step) {
  const Saved training(step);
  write_whole_file(path, step, {{"model/w", training.w}, {"model/flag", training.flag}, {"n", training.n}},
                   {{"epoch", training.epoch}});
}

void expect_holds(const StoredCheckpoint& checkpoint, int64_t step) {
  EXPECT_EQ(checkpoint.step, step);
  EXPECT_EQ(checkpoint.metadata, (StringMap{{"epoch", std::to_string(step)}}));
  ASSERT_EQ(checkpoint.source.tensors.size(), 3u);
  EXPECT_TRUE(read_whole(checkpoint.source, "model/w").equal(at::full({3, 2}, step, at::kFloat)));
}

/// Loads the newest checkpoint into a new training on this rank; returns nullopt if there is none.
std::optional<StoredCheckpoint> load(const CheckpointFolder& folder, dist::World& world) {
  Saved training(-1);
  auto state = training.state(world);
  auto loaded = folder.load_latest(state);
  EXPECT_TRUE(training.w.equal(at::full({3, 2}, loaded ? loaded->step : -1, at::kFloat)));
  EXPECT_EQ(training.epoch, std::to_string(loaded ? loaded->step : -1));
  return loaded;
}
std::optional<StoredCheckpoint> load(const CheckpointFolder& folder) {
  std::optional<StoredCheckpoint> loaded;
  fakes::run_ranks(1, [&](dist::World& world) { loaded = load(folder, world); });
  return loaded;
}

class CheckpointTest : public testing::Test {
 protected:
  Warn collect() {
    return [this](const std::string& message) { warnings_.push_back(message); };
  }

  /// The names of the folder's entries, except hidden ones.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::vector<std::string> warnings_;
};

void overwrite(const fs::path& path, const std::string& bytes) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  write_all(fd.value(), std::as_bytes(std::span(bytes)), path.string());
}

void flip_a_byte(const fs::path& path) {
  auto bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  overwrite(path, bytes);
}

/// Edits a checkpoint's header and corrects its checksum.
void edit_header(const fs::path& path, const std::string& from, const std::string& to) {
  auto bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  bytes.replace(bytes.find(from), from.size(), to);
  const std::string lead = "\"yoke.crc32.header\":\"";
  const size_t field = bytes.find(lead) + lead.size();
  bytes.replace(field, 8, "00000000");
  const auto crc = crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), 8 + length);
  bytes.replace(field, 8, fmt::format("{:08x}", crc));
  overwrite(path, bytes);
}

TEST_F(CheckpointTest, ComesBackWhole) {
  CheckpointFolder folder(folder_ / "new" / "folder", {.warn = collect()});
  EXPECT_FALSE(load(folder));
  save(folder, 12);
  EXPECT_EQ(folder.path_of(12).filename(), "checkpoint-000000000012.safetensors");
  const auto loaded = load(folder);
  ASSERT_TRUE(loaded);
  expect_holds(*loaded, 12);
  EXPECT_EQ(loaded->path, folder.path_of(12));
  EXPECT_TRUE(warnings_.empty());
  // Other programs read it as a plain safetensors file.
  const auto plain = read_safetensors(loaded->path);
  EXPECT_EQ(plain.tensors.size(), 3u);
  EXPECT_EQ(plain.metadata.at("yoke.format"), "yoke-checkpoint");
  EXPECT_EQ(plain.metadata.at("epoch"), "12");
}

TEST_F(CheckpointTest, EveryFlippedBitIsNoticed) {
  const auto path = folder_ / "c";
  write_file(path, 3);
  const auto good = read_file(path);
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const auto byte = static_cast<char>(good[i] ^ (1 << bit));
      ASSERT_EQ(pwrite(fd.value(), &byte, 1, static_cast<off_t>(i)), 1);
      const auto error = error_of([&] { read_checkpoint(path); });
      ASSERT_EQ(error.code(), ErrorCode::kDataLoss) << "bit " << bit << " of byte " << i << ": " << error.what();
      ASSERT_THAT(error.what(), HasSubstr(path.string()));
    }
    ASSERT_EQ(pwrite(fd.value(), &good[i], 1, static_cast<off_t>(i)), 1);
  }
  expect_holds(read_checkpoint(path), 3);
}

TEST_F(CheckpointTest, EveryTruncationIsNoticed) {
  const auto path = folder_ / "c";
  write_file(path, 3);
  const auto size = static_cast<off_t>(fs::file_size(path));
  ASSERT_EQ(truncate(path.c_str(), size + 1), 0);
  EXPECT_EQ(error_of([&] { read_checkpoint(path); }).code(), ErrorCode::kDataLoss);
  for (off_t length = size - 1; length >= 0; --length) {
    ASSERT_EQ(truncate(path.c_str(), length), 0);
    EXPECT_EQ(error_of([&] { read_checkpoint(path); }).code(), ErrorCode::kDataLoss) << length;
  }
}

// After a power cut the rename may have reached the disk, but not the data blocks.
TEST_F(CheckpointTest, ZeroedBlocksAreNoticed) {
  const auto path = folder_ / "c";
  write_file(path, 3);
  const auto size = fs::file_size(path);
  overwrite(path, std::string(size, '\0'));
  EXPECT_EQ(error_of([&] { read_checkpoint(path); }).code(), ErrorCode::kDataLoss);
}

TEST_F(CheckpointTest, ThePreviousOneStandsIn) {
  CheckpointFolder folder(folder_, {.warn = collect()});
  save(folder, 1);
  save(folder, 2);
  flip_a_byte(folder.path_of(2));
  const auto loaded = load(folder);
  ASSERT_TRUE(loaded);
  expect_holds(*loaded, 1);
  EXPECT_THAT(warnings_,
              ElementsAre(fmt::format("refused {}: the data does not match its checksum", folder.path_of(2).string())));

  overwrite(folder.path_of(1), "");
  const auto error = error_of([&] { load(folder); });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(error.what(), fmt::format("no usable checkpoint in {}: {}: the data does not match its checksum",
                                      folder_.string(), folder.path_of(2).string()));
  EXPECT_EQ(warnings_.size(), 3u);
}

TEST_F(CheckpointTest, ForeignFilesAreRefusedByName) {
  CheckpointFolder folder(folder_, {.keep = 9, .warn = collect()});
  save(folder, 1);
  write_safetensors(folder.path_of(2), {{"w", at::zeros({2})}});
  save(folder, 3);
  edit_header(folder.path_of(3), R"("yoke.version":"1")", R"("yoke.version":"2")");
  fs::copy_file(folder.path_of(1), folder.path_of(4));
  fs::create_directory(folder.path_of(5));
  overwrite(folder.path_of(6), "PK\x03\x04 an archive of torch::save");
  fs::create_symlink("nowhere", folder.path_of(7));
  overwrite(folder_ / "checkpoint-8.safetensors", "somebody's own");

  const auto loaded = load(folder);
  ASSERT_TRUE(loaded);
  expect_holds(*loaded, 1);
  const auto refused = [&](int64_t step, const std::string& why) {
    return HasSubstr("refused " + folder.path_of(step).string() + ": " + why);
  };
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("No such file"), refused(6, ""), refused(5, "there is no sharded checkpoint"),
                          refused(4, "holds step 1"), refused(3, "format version 2; this program reads 1"),
                          refused(2, "a safetensors file, but not a checkpoint of yoke")));
  EXPECT_EQ(error_of([&] { read_checkpoint(folder.path_of(3)); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_F(CheckpointTest, KeepsTheLastOnesAndWhatIsNotItsOwn) {
  CheckpointFolder folder(folder_, {.keep = 2});
  overwrite(folder_ / "notes.txt", "");
  overwrite(folder_ / "checkpoint-5.safetensors", "");
  save(folder, 900);  // a checkpoint of an earlier run
  for (int64_t step = 1; step <= 4; ++step) save(folder, step);
  EXPECT_THAT(folder.steps(), ElementsAre(3, 4, 900));
  save(folder, 4, 5);  // a save of the same step replaces the file
  EXPECT_EQ(read_checkpoint(folder.path_of(4)).metadata.at("epoch"), "5");
  EXPECT_EQ(names().size(), 5u);
  EXPECT_EQ(error_of([&] { CheckpointFolder(folder_, {.keep = 0}); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(CheckpointTest, KeepsTheBestBesideTheLast) {
  const std::vector<std::pair<int64_t, std::string>> losses = {{1, "0.5"}, {2, "nan"},  {3, "0.25"}, {4, "-nan"},
                                                               {5, "0.3"}, {6, "0.25"}, {7, "1e-1"}, {8, "0.9"}};
  const auto save_all = [&](CheckpointFolder& folder) {
    for (const auto& [step, loss] : losses) save(folder, step, {{"loss", loss}});
  };
  CheckpointFolder smallest(folder_ / "a", {.keep = 1, .keep_best = 2, .metric = "loss"});
  EXPECT_FALSE(smallest.best_step());
  save_all(smallest);
  EXPECT_THAT(smallest.steps(), ElementsAre(3, 7, 8));  // 3 and 6 are equally good, so the earlier one is kept
  EXPECT_EQ(smallest.best_step(), 7);
  CheckpointFolder largest(folder_ / "b", {.keep = 2, .keep_best = 1, .metric = "loss", .best = Best::kLargest});
  save_all(largest);
  EXPECT_THAT(largest.steps(), ElementsAre(7, 8));  // the best checkpoint is among the newest
  EXPECT_EQ(largest.best_step(), 8);
  // A value that cannot be compared later is refused at the save. A checkpoint without the metric is accepted, but is
  // never among the best.
  for (const std::string text : {"", "bad", "+1", " 0.1", "0,5", "1e-3f"}) {
    EXPECT_EQ(error_of([&] { save(largest, 9, {{"loss", text}}); }).code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(largest.steps(), ElementsAre(7, 8)) << text;
  }
  save(largest, 9);
  EXPECT_EQ(largest.best_step(), 8);
  // A checkpoint with a damaged header has no metric, so the best is chosen among the others.
  overwrite(smallest.path_of(7), "torn");
  EXPECT_EQ(smallest.best_step(), 3);
  EXPECT_EQ(error_of([&] { CheckpointFolder(folder_, {.keep_best = 1}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { CheckpointFolder(folder_, {.keep_best = -1}); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(CheckpointTest, KnowsWhichValuesOfAMetricAreBetter) {
  const auto best_step = [&](const std::string& metric) {
    CheckpointFolder folder(folder_ / metric, {.keep = 3, .keep_best = 1, .metric = metric});
    for (const auto& [step, value] : {std::pair(1, "0.5"), {2, "0.25"}, {3, "0.75"}})
      save(folder, step, {{metric, value}});
    return folder.best_step();
  };
  for (const auto* metric : {"loss", "val_loss", "Loss.train", "word-error", "rmse"})
    EXPECT_EQ(best_step(metric), 2) << metric;
  for (const auto* metric : {"accuracy", "test_accuracy", "val acc", "macro_F1", "iou"})
    EXPECT_EQ(best_step(metric), 3) << metric;
  for (const auto* metric : {"score", "last_step", "lossless", "accuracy_loss", "backlog"}) {
    EXPECT_THAT(error_of([&] { best_step(metric); }).what(), HasSubstr("Best::kSmallest or Best::kLargest")) << metric;
  }
}

TEST_F(CheckpointTest, RemovesAbandonedTemporariesOnly) {
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const auto make = [&](const std::string& name) {
    overwrite(folder_ / name, "half");
    fs::last_write_time(folder_ / name, old);
    return folder_ / name;
  };
  const auto abandoned = make(".checkpoint-000000000007.safetensors.abcdef.tmp");
  const auto alive = make(".checkpoint-000000000008.safetensors.abcdef.tmp");
  const auto young = make(".checkpoint-000000000009.safetensors.abcdef.tmp");
  fs::last_write_time(young, fs::file_time_type::clock::now());
  make(".metrics.csv.abcdef.tmp");
  make("checkpoint-000000000007.safetensors.tmp");
  make(".tmp");
  fs::create_symlink("notes", folder_ / ".checkpoint-000000000010.safetensors.abcdef.tmp");
  const UniqueFd writer(open(alive.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(writer.value(), LOCK_EX), 0);

  CheckpointFolder folder(folder_);
  save(folder, 1);
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_EQ(names().size(), 7u);
}

TEST_F(CheckpointTest, RefusesItsOwnNamesAndNegativeSteps) {
  CheckpointFolder folder(folder_, {.warn = collect()});
  EXPECT_EQ(error_of([&] { save(folder, -1); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { save(folder, 1, {{"yoke.step", "7"}}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] {
              save(folder, 1, {{"epoch", "of the state's own name"}});
            }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(names().empty());
  fakes::run_ranks(1, [&](dist::World& world) {  // a bool whose byte is 7 is saved as a valid bool
    auto flags = at::full({3}, 7, at::kByte).view(at::kBool), undefined = at::Tensor();
    TrainState state(world);
    CheckpointFolder bools(folder_ / "bools");
    state.add("flags", flags);
    bools.save(1, state);
    EXPECT_TRUE(bools.load_latest(state));
    state.add("undefined", undefined);
    EXPECT_EQ(error_of([&] { bools.save(2, state); }).code(), ErrorCode::kInvalidArgument);
  });
  fs::remove_all(folder_ / "bools");
  // A metadata text that looks like one of the format's fields is not mistaken for a field.
  fakes::run_ranks(1, [&](dist::World& world) {
    auto text = std::string(R"("yoke.crc32.header":"00000000","yoke.crc32.data":"00000000")");
    auto tensor = at::full({1}, 3);
    TrainState state(world);
    state.add(R"("yoke.crc32.header")", tensor).add("text", text);
    folder.save(1, state);
    const auto before = std::exchange(text, "");
    tensor.zero_();
    folder.load_latest(state);
    EXPECT_EQ(text, before);
    EXPECT_EQ(tensor.item<int64_t>(), 3);
  });
}

TEST_F(CheckpointTest, OneRunHoldsAFolder) {
  {
    const FolderLock lock(folder_ / "out");
    const auto error = error_of([&] { FolderLock(folder_ / "out"); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "out").string() + " is in use by another run: pid " +
                                        std::to_string(getpid()) + " on "));
    FolderLock(folder_ / "other");
  }
  FolderLock(folder_ / "out");
}

TEST_F(CheckpointTest, AKilledRunLetsGo) {
  auto ready = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    try {
      const FolderLock lock(folder_);
      [[maybe_unused]] const auto count = write(ready.write_end.value(), "x", 1);
      while (true) pause();
    } catch (...) {
      _exit(1);
    }
  }
  ready.write_end.reset();
  char byte = 0;
  ASSERT_EQ(read(ready.read_end.value(), &byte, 1), 1);
  EXPECT_THROW(FolderLock{folder_}, Error);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FolderLock lock(folder_);
}

TEST_F(CheckpointTest, AllRanksTakeWhatRank0Chooses) {
  CheckpointFolder writer(folder_, {.keep = 3});
  for (int64_t step = 1; step <= 3; ++step) save(writer, step);
  flip_a_byte(writer.path_of(3));
  fakes::run_ranks(3, [&](dist::World& world) {
    int64_t num_warnings = 0;
    const CheckpointFolder folder(folder_, {.warn = [&](const std::string&) { ++num_warnings; }});
    const auto loaded = load(folder, world);
    ASSERT_TRUE(loaded);
    expect_holds(*loaded, 2);
    EXPECT_EQ(num_warnings, world.rank() == 0 ? 1 : 0);
    EXPECT_FALSE(load(CheckpointFolder(folder_ / "empty"), world));
  });
}

TEST_F(CheckpointTest, AllRanksFailTogether) {
  const auto load_here = [](const fs::path& path, dist::World& world) {
    Saved training(-1);
    auto state = training.state(world);
    const auto error =
        error_of([&] { CheckpointFolder(path, {.warn = [](const std::string&) {}}).load_latest(state); });
    EXPECT_TRUE(training.w.equal(at::full({3, 2}, -1, at::kFloat)));
    return error;
  };
  CheckpointFolder folder(folder_);
  save(folder, 1);
  fakes::run_ranks(2, [&](dist::World& world) {
    // Rank 1 sees a different disk.
    const auto error = load_here(world.rank() == 0 ? folder_ : folder_ / "elsewhere", world);
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
    EXPECT_EQ(std::string(error.what()).starts_with("all ranks need the folder " + folder_.string()),
              world.rank() == 0);
  });
  flip_a_byte(folder.path_of(1));
  fakes::run_ranks(2, [&](dist::World& world) {
    const auto error = load_here(folder_, world);
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("the data does not match its checksum"));
    EXPECT_EQ(std::string_view(error.what()).find("rank 0: ") != std::string_view::npos, world.rank() == 1);
  });
}

// Saves the same step once whole and once divided. The last save is valid, and the other form is removed.
TEST_F(CheckpointTest, AFileAndAFolderOfOneStepReplaceEachOther) {
  CheckpointFolder folder(folder_);
  const auto save_on = [&](int64_t num_ranks, int64_t value) {
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      auto own = at::full({2}, value);
      mark_sharded(own, {.shape = {2 * num_ranks}, .first = 2 * world.rank(), .group = &world});
      CheckpointFolder mine(folder_);
      mine.save(7, std::move(TrainState(world).add("t", own)));
    });
  };
  for (const int64_t num_ranks : {1, 2, 1, 4}) {
    save_on(num_ranks, num_ranks);
    EXPECT_EQ(names().size(), 1u);
    EXPECT_THAT(folder.steps(), ElementsAre(7));
    const auto checkpoint = read_checkpoint(folder.path_of(7));
    EXPECT_EQ(checkpoint.num_shards, num_ranks == 1 ? 0 : num_ranks);
    EXPECT_TRUE(read_whole(checkpoint.source, "t").equal(at::full({2 * num_ranks}, num_ranks)));
  }
}

}  // namespace
}  // namespace yoke::train
