// Tests `yoke train fashion-mnist` on a small data set that the test generates: ten kinds of noisy stripes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/recipes/figures.h"
#include "tests/support/command.h"
#include "tests/support/terminal.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using test::Command;
using test::CommandOptions;
using test::Result;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

void write_gz(const fs::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb1");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

std::string header(std::initializer_list<uint32_t> words) {
  std::string text;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(word >> shift & 0xff));
  }
  return text;
}

void write_split(const fs::path& folder, const std::string& prefix, uint32_t count) {
  std::mt19937 random(count);
  std::string images = header({0x803, count, 28, 28}), labels = header({0x801, count});
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t kind = i % 10;
    for (uint32_t row = 0; row < 28; ++row) {
      for (uint32_t column = 0; column < 28; ++column) {
        const bool bright = (row * (kind % 4 + 1) + column * (kind / 4 + 1)) / 3 % 3 == 0;
        images.push_back(static_cast<char>((bright ? 150 : 20) + random() % 60));
      }
    }
    labels.push_back(static_cast<char>(kind));
  }
  write_gz(folder / (prefix + "-images-idx3-ubyte.gz"), images);
  write_gz(folder / (prefix + "-labels-idx1-ubyte.gz"), labels);
}

class FashionMnist : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<test::TemporaryFolder>();
    write_split(data(), "train", 2600);  // 20 steps of 128 samples; the last 40 samples are dropped
    write_split(data(), "t10k", 1000);
  }
  static void TearDownTestSuite() { shared_.reset(); }
  static fs::path data() { return shared_->path(); }

  CommandOptions training(std::vector<std::string> words, const fs::path& from = data()) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "train", "fashion-mnist", "-n", "2", "--data", from.string()};
    const bool resumes = std::find(words.begin(), words.end(), "--resume") != words.end();
    if (!resumes) argv.insert(argv.end(), {"--batch-size", "128"});  // a checkpoint has it
    argv.insert(argv.end(), words.begin(), words.end());
    return {.argv = argv, .folder = folder_.path()};
  }
  Result train(const std::vector<std::string>& words) const { return test::run(training(words)); }

  fs::path file(const std::string& name) const { return fs::path(folder_.path()) / name; }
  /// The step of the newest checkpoint of a run; 0 if there is none.
  int newest_step(const std::string& run) const {
    int newest = 0, step = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(file(run), none)) {
      if (std::sscanf(entry.path().filename().c_str(), "checkpoint-%d.safetensors", &step) == 1) {
        newest = std::max(newest, step);
      }
    }
    return newest;
  }

  test::TemporaryFolder folder_;
  static std::unique_ptr<test::TemporaryFolder> shared_;
};
std::unique_ptr<test::TemporaryFolder> FashionMnist::shared_;

constexpr const char* kLast = "checkpoint-000000000040.safetensors";  // after two epochs

TEST_F(FashionMnist, TrainsAndLeavesWhatItPromises) {
  const auto result = train({"--epochs", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("fashion-mnist: 2 ranks on the CPU, ddp, 2 x 64 samples a step"));
  EXPECT_THAT(result.out, ContainsRegex("\n +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ "));
  EXPECT_THAT(result.out, ContainsRegex("\ntest accuracy (1\\.0000|0\\.9[0-9]+)\n")) << "stripes are easy";
  EXPECT_THAT(result.out,
              HasSubstr("yoke train fashion-mnist --resume --out runs/fashion-mnist -n 2 --batch-size 128\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("\r"))) << "no progress line in a file";
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(fs::exists(file("runs/fashion-mnist") / kLast));
  const auto csv = read_file(file("runs/fashion-mnist/metrics.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  EXPECT_THAT(csv, testing::StartsWith("epoch,train_loss,test_loss,test_accuracy,"));
}

TEST_F(FashionMnist, AnyNumberOfRanksLearnsTheSame) {
  for (const auto* num_ranks : {"1", "3"}) {
    auto options = training({"--epochs", "2", "--out", std::string("ranks-") + num_ranks});
    options.argv[4] = num_ranks;
    const auto result = test::run(options);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, ContainsRegex("\ntest accuracy (1\\.0000|0\\.9[0-9]+)\n")) << num_ranks << " ranks";
  }
}

TEST_F(FashionMnist, ShowsProgressOnATerminal) {
  auto options = training({"--epochs", "1"});
  options.on_terminal = true;
  EXPECT_THAT(test::run(options).out,
              ContainsRegex("epoch 1/1  step [0-9]+/20  train loss [0-9.]+  [0-9.]+ ?k? samples/s"));
}

// Oracle: the run by DistributedDataParallel, of which each rank's batch norm sees the same part of each batch.
TEST_F(FashionMnist, EveryWayGivesTheSameTraining) {
  for (const std::string way : {"ddp", "zero1", "fsdp"}) {
    if (way == "zero1" && std::getenv("YOKE_LONG") == nullptr) continue;  // cifar's test has it
    const auto result =
        train({"--epochs", "1", "--precision", "fp32", "--deterministic", "--parallel", way, "--out", way});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto expected = test::figures_of(file("ddp"), "test_loss").back();
    EXPECT_NEAR(test::figures_of(file(way), "test_loss").back(), expected, 2e-3 * expected) << way;
  }
}

// Oracle: an uninterrupted run. A run that is killed in the middle of an epoch and resumed must end with the same file.
TEST_F(FashionMnist, AKilledRunResumesToTheSameBits) {
  const std::vector<std::string> exact = {"--epochs", "2", "--precision", "fp32", "--deterministic"};
  auto words = exact;
  words.insert(words.end(), {"--out", "whole"});
  const auto whole = train(words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  words = exact;
  words.insert(words.end(), {"--out", "killed", "--checkpoint-every", "3"});
  Command command(training(words));
  ASSERT_TRUE(command.wait_until([&] { return newest_step("killed") > 20; }));  // in the second epoch
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 137);
  ASSERT_FALSE(fs::exists(file("killed") / kLast)) << "it was too fast to be killed; nothing was tested";

  const auto resumed = train({"--resume", "--out", "killed"});  // the checkpoint contains all other options
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, ContainsRegex("resumed from killed/checkpoint-0+[0-9]+.safetensors at epoch 2, step [1-9]"));
  EXPECT_TRUE(read_file(file("killed") / kLast) == read_file(file("whole") / kLast));

  // Drops the columns that contain times from each line.
  const auto figures = [&](const char* run) {
    std::istringstream lines(read_file(file(run) / "metrics.csv"));
    std::string all;
    for (std::string line; std::getline(lines, line);)
      all += line.substr(0, line.rfind(',', line.rfind(',') - 1)) + "\n";
    return all;
  };
  EXPECT_EQ(figures("killed"), figures("whole"));
}

constexpr const char* kRewrite = R"(
import sys
sys.path.insert(0, sys.argv[1])
import yoke

read = yoke.read_checkpoint(sys.argv[2])
parts = {part: read.tensor(part, "raw") if part in read.names() else read.part(part, "raw") for part in read.parts}
parts = {part: value for part, value in parts.items() if value}  # the others are numbers and texts, in the metadata
print(f"step {read.step}, {len(read.part('model', 'raw'))} tensors of the model, epochs {read.metadata['epochs']}")
yoke.write_checkpoint(sys.argv[3], read.step, parts, read.metadata)
)";

// Oracle: an uninterrupted run. What Python has read of a Run and written again must lead to the same file.
TEST_F(FashionMnist, ACheckpointThatPythonWroteResumesToTheSameBits) {
  auto options = training({"--epochs", "2", "--precision", "fp32", "--deterministic", "--out", "whole"});
  options.argv[4] = "1";
  ASSERT_EQ(test::run(options).exit_code, 0);

  const auto rewritten = test::run({.argv = {"python3", "-Bc", kRewrite, YOKE_PYTHON,
                                             file("whole/checkpoint-000000000020.safetensors"), file("copy")}});
  ASSERT_EQ(rewritten.exit_code, 0) << rewritten.err;
  EXPECT_THAT(rewritten.out, ContainsRegex("^step 20, [1-9][0-9]* tensors of the model, epochs 2\n$"));

  options = training({"--resume", "--out", "copy"});
  options.argv[4] = "1";
  const auto resumed = test::run(options);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed from copy/checkpoint-000000000020.safetensors at epoch 2, step 0"));
  EXPECT_TRUE(read_file(file("copy") / kLast) == read_file(file("whole") / kLast));
}

// Oracle: the file of an uninterrupted run. A scheduler sends SIGTERM to the launcher, a user presses Ctrl-C, and the
// grace period must suffice for a checkpoint.
TEST_F(FashionMnist, ARunThatIsToldToStopSavesAndResumesToTheSameBits) {
  const std::vector<std::string> exact = {"--epochs", "2", "--precision", "fp32", "--deterministic"};
  auto words = exact;
  words.insert(words.end(), {"--out", "whole"});
  ASSERT_EQ(train(words).exit_code, 0);

  for (const int signal : {SIGTERM, SIGINT}) {
    const auto told = "told-" + std::to_string(signal);
    words = exact;
    words.insert(words.end(), {"--out", told, "--checkpoint-every", "3"});
    Command command(training(words));
    ASSERT_TRUE(command.wait_until([&] { return newest_step(told) > 0; }));
    command.signal(signal);
    const auto stopped = command.wait();
    EXPECT_EQ(stopped.exit_code, 128 + signal) << "of the launcher, which was told";
    EXPECT_THAT(stopped.out, ContainsRegex("\ntold to stop at epoch [12], step [0-9]+; the checkpoint is saved\n"))
        << stopped.err;
    EXPECT_THAT(stopped.out, HasSubstr("to resume     yoke train fashion-mnist --resume --out " + told));
    EXPECT_THAT(stopped.err, Not(HasSubstr("killed")));
    EXPECT_EQ(stopped.err.find("Ctrl-C: stopping at the end of a step; a second Ctrl-C kills") != std::string::npos,
              signal == SIGINT)
        << stopped.err;
    ASSERT_FALSE(fs::exists(file(told) / kLast)) << "it was too fast to be told; nothing was tested";

    const auto resumed = train({"--resume", "--out", told});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.out,
                ContainsRegex("resumed from " + told + "/checkpoint-0+[0-9]+.safetensors at epoch [12], step [0-9]+"));
    EXPECT_TRUE(read_file(file(told) / kLast) == read_file(file("whole") / kLast));
  }
}

// A script must not take a training for complete because it was saved. A single rank handles Ctrl-C alone, and the
// launcher takes its status.
TEST_F(FashionMnist, CtrlCAtATerminalGivesOneStatusForAnyNumberOfRanks) {
  for (const auto* num_ranks : {"1", "2"}) {
    const auto out = file(std::string("told-") + num_ranks);
    test::ShellOnTerminal shell;
    shell.run(fmt::format("cd {} && {} train fashion-mnist -n {} --epochs 500 --data {} --out {}; echo \"status $?\"",
                          folder_.path(), YOKE_COMMAND, num_ranks, data().string(), out.string()));
    ASSERT_TRUE(shell.wait_until([&] { return fs::exists(out / "metrics.csv"); }, std::chrono::minutes(1)));
    shell.type(test::kCtrlC);
    EXPECT_TRUE(shell.shows("status 130")) << num_ranks << ": " << shell.out();
    EXPECT_THAT(shell.out(), HasSubstr("told to stop at epoch ")) << num_ranks;
  }
}

TEST_F(FashionMnist, ATornCheckpointIsNamedAndTheOneBeforeUsed) {
  ASSERT_EQ(train({"--epochs", "2", "--out", "torn"}).exit_code, 0);
  fs::resize_file(file("torn") / kLast, fs::file_size(file("torn") / kLast) / 2);
  const auto result = train({"--resume", "--out", "torn"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(kLast));
  EXPECT_THAT(result.out, HasSubstr("resumed from torn/checkpoint-000000000020.safetensors at epoch 2, step 0"));
}

TEST_F(FashionMnist, ResumingAFinishedRunTestsItAgain) {
  const auto first = train({"--epochs", "1", "--out", "done"});
  const auto again = train({"--epochs", "1", "--out", "done", "--resume"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const auto line = [](const std::string& out) { return out.substr(out.rfind("test accuracy "), 20); };
  EXPECT_EQ(line(again.out), line(first.out));
  EXPECT_THAT(again.out, HasSubstr("done/checkpoint-000000000020.safetensors is the end of that run"));
}

TEST_F(FashionMnist, RefusesWhatWouldSpoilARun) {
  ASSERT_EQ(train({"--epochs", "1", "--out", "mine"}).exit_code, 0);
  const auto again = train({"--epochs", "1", "--out", "mine"});
  EXPECT_EQ(again.exit_code, exit_status(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(
      again.err,
      HasSubstr("mine holds checkpoints, of another run or of this one before a restart; go on from them (--resume)"));

  const auto changed = train({"--epochs", "9", "--out", "mine", "--resume"});
  EXPECT_EQ(changed.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(changed.err, HasSubstr("epochs 9 was given, but the run to resume was started with 1"));
}

TEST_F(FashionMnist, BadDataIsNamed) {
  const auto missing = test::run(training({"--epochs", "1"}, "/nonexistent"));
  EXPECT_EQ(missing.exit_code, exit_status(ErrorCode::kNotFound));
  EXPECT_THAT(missing.err, HasSubstr("in /nonexistent;"));
  EXPECT_THAT(missing.err, HasSubstr("dataset-fashion-mnist"));

  const auto copy = file("data");
  fs::copy(data(), copy);
  const auto images = copy / "train-images-idx3-ubyte.gz";
  fs::resize_file(images, fs::file_size(images) - 1000);
  const auto truncated = test::run(training({"--epochs", "1"}, copy));
  EXPECT_EQ(truncated.exit_code, exit_status(ErrorCode::kDataLoss));
  EXPECT_THAT(truncated.err, HasSubstr(images.string()));
}

TEST_F(FashionMnist, TwoRunsAtOnceStayApart) {
  Command first(training({"--epochs", "1"})), second(training({"--epochs", "1"}));
  EXPECT_EQ(first.wait().exit_code, 0);
  EXPECT_EQ(second.wait().exit_code, 0);
  EXPECT_TRUE(fs::exists(file("runs/fashion-mnist/metrics.csv")));
  EXPECT_TRUE(fs::exists(file("runs/fashion-mnist-2/metrics.csv")));
}

TEST_F(FashionMnist, AFullDiskKeepsTheCheckpointBeforeAndSaysSo) {
  const auto disk = file("disk");
  fs::create_directory(disk);
  // This disk has room for two checkpoints of 2.4 MiB, but not for a third.
  if (mount("yoke", disk.c_str(), "tmpfs", 0, "size=6m") != 0) GTEST_SKIP() << "cannot mount a small disk here";
  const auto result = train({"--epochs", "3", "--out", "disk/run"});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kUnavailable));
  EXPECT_THAT(result.err, HasSubstr("disk/run/checkpoint-000000000060.safetensors"));
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  EXPECT_TRUE(fs::exists(disk / "run" / kLast));
  EXPECT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=64m"), 0);
  const auto resumed = train({"--resume", "--out", "disk/run"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr(kLast));
  EXPECT_EQ(umount(disk.c_str()), 0);
}

TEST_F(FashionMnist, HasHelpAndIsListed) {
  const auto help = test::run({.argv = {YOKE_COMMAND, "train", "fashion-mnist", "--help"}});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
  EXPECT_THAT(help.out, HasSubstr("--deterministic"));
  const auto list = test::run({.argv = {YOKE_COMMAND, "train", "--list"}});
  EXPECT_THAT(list.out, HasSubstr("fashion-mnist  Ten kinds of clothes"));
}

}  // namespace
}  // namespace yoke
