// Tests `yoke train cifar` and `yoke train images` on small sets that the tests write: two kinds of coloured pictures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <sstream>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/png.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using test::Result;
using testing::ContainsRegex;
using testing::HasSubstr;

/// A picture [side, side, 3] that is more red (kind 0) or more blue (kind 1), under noise.
std::vector<uint8_t> picture(int kind, std::mt19937& random, int side) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < side * side; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      pixels.push_back(static_cast<uint8_t>((channel == 2 * kind ? 120 : 40) + random() % 100));
    }
  }
  return pixels;
}

class Vision : public testing::Test {
 protected:
  Result train(const std::string& recipe, int num_ranks, std::vector<std::string> words) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "train", recipe, "-n", std::to_string(num_ranks)};
    argv.insert(argv.end(), words.begin(), words.end());
    return test::run({.argv = argv, .environment = {{"OMP_NUM_THREADS", "1"}}, .folder = folder_.path()});
  }
  fs::path file(const std::string& name) const { return folder_.path(name); }

  /// The figures of a run's last epoch, by the names of metrics.csv's columns.
  std::map<std::string, double> figures(const std::string& run) const {
    std::istringstream lines(read_file(file(run) / "metrics.csv"));
    std::string names, line, values;
    std::getline(lines, names);
    while (std::getline(lines, line)) values = line;
    std::map<std::string, double> result;
    std::istringstream name_words(names), value_words(values);
    for (std::string name, value; std::getline(name_words, name, ',') && std::getline(value_words, value, ',');) {
      result[name] = std::stod(value);
    }
    return result;
  }
  void expect_same(const std::string& one, const std::string& other) const {
    for (const auto* name : {"train_loss", "test_loss"}) {
      const auto expected = figures(one).at(name);
      EXPECT_NEAR(figures(other).at(name), expected, 2e-3 * expected + 1e-4) << name << " of " << other;
    }
  }

  test::TemporaryFolder folder_;
};

class Cifar : public Vision {
 protected:
  void SetUp() override {
    write("train.bin", 96);
    write("test.bin", 40);
  }
  void write(const std::string& name, int count) const {
    std::mt19937 random(static_cast<unsigned>(count));
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      const auto pixels = picture(i % 2, random, 32);
      bytes.push_back(static_cast<char>(i % 2));
      for (size_t channel = 0; channel < 3; ++channel) {
        for (size_t pixel = 0; pixel < 1024; ++pixel) bytes.push_back(static_cast<char>(pixels[3 * pixel + channel]));
      }
    }
    folder_.write("data/" + name, bytes);
  }
  Result cifar(int num_ranks, std::vector<std::string> words) const {
    words.insert(words.end(), {"--data", "data"});
    return train("cifar", num_ranks, words);
  }
};

const std::vector<std::string> kExact = {"--epochs",    "1",    "--batch-size",   "32",
                                         "--precision", "fp32", "--deterministic"};

// Oracle: the run by DistributedDataParallel.
TEST_F(Cifar, EveryWayGivesTheSameTraining) {
  const auto words = [](const std::string& out, const std::string& way) {
    auto result = kExact;
    result.insert(result.end(), {"--out", out, "--parallel", way});
    return result;
  };
  const auto whole = cifar(2, words("ddp", "ddp"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("cifar: smallest, 2 ranks on the CPU, ddp, 2 x 16 samples a step, fp32"));
  EXPECT_TRUE(fs::exists(file("ddp/model.safetensors")));

  const auto zero = cifar(2, words("zero1", "zero1"));
  ASSERT_EQ(zero.exit_code, 0) << zero.err;
  EXPECT_THAT(zero.out, HasSubstr(", zero1, "));
  expect_same("ddp", "zero1");

  if (std::getenv("YOKE_LONG") == nullptr) return;  // the next test has fsdp, without batch norm
  const auto sharded = cifar(2, words("fsdp", "fsdp"));
  ASSERT_EQ(sharded.exit_code, 0) << sharded.err;
  expect_same("ddp", "fsdp");
}

class Images : public Vision {
 protected:
  static std::string png(int kind, std::mt19937& random) { return encode_png(picture(kind, random, 64), 64, 64, 3); }
  Result images(std::vector<std::string> words) const {
    words.insert(words.end(), {"--preset", "smallest-vit", "--epochs", "1", "--batch-size", "8"});
    return train("images", 1, words);
  }
  /// An entry of a tar file: a header of 512 bytes, and the content in blocks of 512 bytes.
  static std::string tar_entry(const std::string& name, const std::string& content) {
    std::string header(512, '\0');
    const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, name);
    put(100, "0000644");
    put(124, fmt::format("{:011o}", content.size()));
    put(148, "        ");
    put(156, "0");
    put(257, std::string("ustar\00000", 8));
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + '\0');
    return header + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
};

// Oracle: an uninterrupted run on two ranks. A transformer has no batch norm, so that its training does not depend on
// the number of ranks.
TEST_F(Images, AKilledRunGoesOnInAnotherWayOnAnotherNumberOfRanks) {
  std::mt19937 random(6);
  for (int i = 0; i < 40; ++i) folder_.write(fmt::format("data/{}/{:02}.png", i % 2, i), png(i % 2, random));
  const auto words = [](const std::string& out, const std::string& way) {
    return std::vector<std::string>{
        "--preset", "smallest-vit", "--epochs",   "8", "--batch-size", "8",    "--out",          out,
        "--data",   "data",         "--parallel", way, "--precision",  "fp32", "--deterministic"};
  };
  const auto whole = train("images", 2, words("whole", "ddp"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  std::vector<std::string> argv = {YOKE_COMMAND, "train", "images", "-n", "2", "--checkpoint-every", "3"};
  const auto killed = words("killed", "fsdp");
  argv.insert(argv.end(), killed.begin(), killed.end());
  test::Command command({.argv = argv, .folder = folder_.path()});
  // When the second checkpoint is being written, the first one is complete.
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(file("killed/checkpoint-000000000006")); }));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 137);
  ASSERT_FALSE(fs::exists(file("killed/model.safetensors"))) << "it was too fast to be killed; nothing was tested";

  const auto resumed = train("images", 1, {"--resume", "--out", "killed", "--parallel", "ddp"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed from killed/checkpoint-"));
  EXPECT_THAT(resumed.out, HasSubstr("1 rank on the CPU, ddp, 1 x 8 samples a step, fp32, deterministic"));
  EXPECT_THAT(resumed.out, ContainsRegex("\ntest accuracy (1\\.0000|0\\.9[0-9]+)\n")) << "two colours are easy";
  expect_same("whole", "killed");

  // `yoke infer` finds the network of the run, and is as often right as the training has said.
  const auto inferred = test::run({.argv = {YOKE_COMMAND, "infer", "whole", "--input", "data", "--out", "top.csv",
                                            "--top", "1", "-n", "2", "--precision", "fp32"},
                                   .folder = folder_.path()});
  ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
  EXPECT_THAT(inferred.err, HasSubstr("40 images as [3, 32, 32]"));
  std::istringstream rows(read_file(file("top.csv")));
  int num_right = 0;
  for (std::string row; std::getline(rows, row);)
    num_right += std::regex_search(row, std::regex(",([01])/.*,\\1,")) ? 1 : 0;
  EXPECT_GE(num_right, 37);

  // A checkpoint that does not name its recipe needs --recipe; that of another one is refused.
  const auto other = test::run(
      {.argv = {YOKE_COMMAND, "infer", "whole", "--input", "data", "--out", "y.csv", "-n", "1", "--recipe", "gpt"},
       .folder = folder_.path()});
  EXPECT_EQ(other.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(other.err, HasSubstr("does not say its 'tokenizer': another training wrote it"));
}

// The same pictures in each form give the same training.
TEST_F(Images, ComeFromFoldersACsvFileOrTarShards) {
  std::mt19937 random(5);
  std::string csv = "label,path\n", tar;
  for (int i = 0; i < 40; ++i) {
    const auto* kind = i % 2 == 0 ? "blue" : "red";
    const auto bytes = png(1 - i % 2, random);
    const auto name = fmt::format("folder/{}/{:02}.png", kind, i);
    folder_.write(name, bytes);
  }
  // ImageFolder's order is that of classes, then of files.
  for (int i = 0; i < 40; ++i) {
    const auto name = fmt::format("folder/{}/{:02}.png", i < 20 ? "blue" : "red", i < 20 ? 2 * i : 2 * (i - 20) + 1);
    csv += fmt::format("{},\"{}\"\n", i < 20 ? "blue" : "red", name);
    tar += tar_entry(fmt::format("{:04}.png", i), read_file(file(name)));
    tar += tar_entry(fmt::format("{:04}.cls", i), i < 20 ? "0\n" : "1\n");
  }
  folder_.write("list.csv", csv);
  folder_.write("shards/a.tar", tar + std::string(1024, '\0'));
  folder_.write("shards/classes.txt", "blue\nred\n");

  for (const auto* data : {"folder", "list.csv", "shards"}) {
    const auto out = std::string("of-") + data;
    const auto result = images({"--data", data, "--out", out, "--precision", "fp32", "--deterministic"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("images: smallest-vit, 36 pictures of 2 classes, 1 rank on the CPU, ddp"));
    EXPECT_EQ(figures(out).at("test_loss"), figures("of-folder").at("test_loss")) << data;
  }

  // Another number of classes begins with these weights.
  const auto more =
      images({"--data", "shards", "--head", "5", "--init", "of-folder/model.safetensors", "--deterministic"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("weights of of-folder/model.safetensors; the last layer is new, for 5 classes\n"));
  EXPECT_THAT(more.out, HasSubstr("36 pictures of 5 classes"));
}

// The figure in recipes/images/README.md.
TEST_F(Images, TheSmallestTransformerLearnsDrawnShapes) {
  if (std::getenv("YOKE_LONG") == nullptr) return;
  for (const int num_ranks : {1, 2}) {
    const auto out = fmt::format("ranks-{}", num_ranks);
    const auto result = train("images", num_ranks, {"--preset", "smallest-vit", "--out", out});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("10000 pictures of 10 classes"));
    EXPECT_THAT(result.out, HasSubstr(", fp32, into")) << "faster for so small a network";
    EXPECT_GE(figures(out).at("test_accuracy"), 0.9);
  }
}

TEST_F(Images, ThatCannotBeUsedAreNamed) {
  const auto refusal = [&](std::vector<std::string> words, ErrorCode code) {
    const auto result = images(std::move(words));
    EXPECT_EQ(result.exit_code, exit_status(code)) << result.out;
    return result.err;
  };
  std::mt19937 random(5);
  folder_.write("shards/a.tar", tar_entry("1.png", png(0, random)) + tar_entry("1.cls", "7") + std::string(1024, '\0'));
  folder_.write("bad.csv", "path,label\nx.png,a\ny.png\n");
  EXPECT_THAT(refusal({"--data", "nowhere"}, ErrorCode::kNotFound), HasSubstr("there is no nowhere"));
  EXPECT_THAT(refusal({"--data", "shards"}, ErrorCode::kInvalidArgument), HasSubstr("classes.txt beside the shards"));
  EXPECT_THAT(refusal({"--data", "bad.csv"}, ErrorCode::kDataLoss), HasSubstr("bad.csv:3: expected 2 fields"));
  for (const auto* name : {"few/train/a/1.png", "few/train/b/2.png", "few/val/a/3.png", "few/val/b/4.png"}) {
    folder_.write(name, png(0, random));
  }
  EXPECT_THAT(refusal({"--data", "few"}, ErrorCode::kInvalidArgument), HasSubstr("fewer samples than one step takes"));
  folder_.write("few/val/c/5.png", png(0, random));
  EXPECT_THAT(refusal({"--data", "few"}, ErrorCode::kInvalidArgument), HasSubstr("2 and 3 of them: c is in one"));
}

TEST_F(Vision, RecipesAreListed) {
  const auto list = test::run({.argv = {YOKE_COMMAND, "train", "--list"}});
  EXPECT_THAT(list.out, ContainsRegex("\n?cifar +CIFAR-10"));
  EXPECT_THAT(list.out, ContainsRegex("\nimages +Pictures of your own"));
}

}  // namespace
}  // namespace yoke
