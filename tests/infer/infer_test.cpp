// Tests `yoke infer` as a user starts it: the same file from any number of ranks, after a kill, and after Ctrl-C; bad
// samples; wrong uses. Recipes' checkpoints are in tests/recipes, and models of Python in check_infer.py.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/png.h"
#include "yoke/train/format/safetensors.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using test::Result;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kWidth = 64, kNumSamples = 1500, kBatch = 8;

class Infer : public testing::Test {
 protected:
  Infer() {
    torch::manual_seed(1);
    x_ = torch::randn({kNumSamples, kWidth});
    train::write_safetensors(path("x.safetensors"), train::TensorMap{{"input", x_}});
    w_ = torch::randn({kWidth, kWidth}) / 8;
    save("m.pt",
         "y = torch.tanh(torch.mm(x, self.w))\n  for i in range(3):\n    y = torch.tanh(torch.mm(y, self.w))\n"
         "  return y\n");
  }
  void save_slow(int num_products) const {
    save("slow.pt", fmt::format("y = x\n  for i in range({}):\n    y = torch.tanh(torch.mm(y, self.w))\n  return y\n",
                                num_products));
  }
  /// Starts a run of slow.pt and returns when it has saved something, which it does each second, and no more than
  /// `most_done` samples. The network is made slower until a run takes this machine long enough.
  std::unique_ptr<test::Command> start_slow(const std::string& out, const std::string& num_ranks,
                                            int64_t most_done = kNumSamples) const {
    for (int num_products = most_done < kNumSamples ? 4000 : 2000;; num_products *= 2) {
      save_slow(num_products);
      auto command = std::make_unique<test::Command>(infer(slowly(out, num_ranks)));
      const auto has_saved = [&] { return samples_in(path(out + ".progress")) > 0; };
      EXPECT_TRUE(command->wait_until([&] { return has_saved() || fs::exists(path(out)); })) << command->err();
      if (!fs::exists(path(out)) && samples_in(path(out + ".progress")) < most_done) return command;
      command->wait();
      fs::remove(path(out));
    }
  }
  void save(const std::string& name, const std::string& body) const {
    torch::jit::Module module("m");
    module.register_parameter("w", w_, false);
    module.define("def forward(self, x):\n  " + body);
    module.save(path(name).string());
  }
  fs::path path(const std::string& name) const { return folder_.path(name); }

  test::CommandOptions infer(std::vector<std::string> words) const {
    words.insert(words.begin(), {YOKE_COMMAND, "infer"});
    return {.argv = std::move(words), .environment = {{"OMP_NUM_THREADS", "1"}}, .folder = folder_.path()};
  }
  Result run(std::vector<std::string> words) const { return test::run(infer(std::move(words))); }
  std::vector<std::string> slowly(const std::string& out, const std::string& num_ranks) const {
    return {"slow.pt", "--input",      "x.safetensors",       "--out", out, "-n",
            num_ranks, "--batch-size", std::to_string(kBatch)};
  }
  static int64_t samples_in(const fs::path& progress) {
    const auto json = nlohmann::json::parse(test::slurp(progress.string()), nullptr, false);
    return json.is_object() ? json.value("samples", int64_t{0}) : 0;
  }

  test::TemporaryFolder folder_;
  torch::Tensor x_, w_;
};

// Oracle: the same network in this process, batch by batch.
TEST_F(Infer, OneTwoAndFourRanksWriteWhatOneProcessComputesInOrder) {
  torch::set_num_threads(1);
  std::vector<torch::Tensor> parts;
  for (const auto& batch : x_.split(kBatch)) {
    auto y = batch;
    for (int i = 0; i < 4; ++i) y = torch::tanh(torch::mm(y, w_));
    parts.push_back(y);
  }
  for (const auto* num_ranks : {"1", "2", "4"}) {
    const auto out = std::string("y") + num_ranks + ".safetensors";
    const auto result = run({"m.pt", "--input", "x.safetensors", "--out", out, "-n", num_ranks, "--batch-size", "8"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(out + "  1500 samples in "));
    EXPECT_TRUE(torch::equal(train::read_safetensors(path(out)).tensors.at("output"), torch::cat(parts))) << num_ranks;
    EXPECT_FALSE(fs::exists(path(out + ".partial")) || fs::exists(path(out + ".progress")));
  }
}

TEST_F(Infer, AKilledRunGoesOnWhereItsFileEndsOnAnotherNumberOfRanks) {
  const auto command = start_slow("y.npy", "2");
  command->signal(SIGKILL);
  EXPECT_EQ(command->wait().exit_code, 137);
  ASSERT_FALSE(fs::exists(path("y.npy"))) << "it was too fast to be killed; nothing was tested";
  const auto whole = run(slowly("whole.npy", "2"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto refused = run(slowly("y.npy", "1"));
  EXPECT_EQ(refused.exit_code, exit_status(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(refused.err, HasSubstr("an earlier run has left y.npy.partial; --resume goes on with it"));

  // The guardian ends the ranks when the launcher is gone; until then the file is locked.
  Result resumed;
  const auto num_saved = [&] { return samples_in(path("y.npy.progress")); };
  ASSERT_TRUE(test::wait_until([&] {
    auto words = slowly("y.npy", "1");
    words.insert(words.end(), {"--resume", "--json"});
    resumed = run(words);
    return resumed.exit_code != exit_status(ErrorCode::kUnavailable);
  }));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(num_saved(), 0) << "the record is removed at the end";
  const auto json = nlohmann::json::parse(resumed.out);
  EXPECT_GT(json["num_resumed"], 0);
  EXPECT_EQ(json["num_done"], kNumSamples);
  EXPECT_EQ(read_file(path("y.npy")), read_file(path("whole.npy")));

  // What is complete is not computed again.
  auto words = slowly("y.npy", "1");
  words.emplace_back("--resume");
  EXPECT_THAT(run(words).out, HasSubstr("y.npy is complete already"));
}

TEST_F(Infer, CtrlCKeepsWhatIsDoneAndSaysHowToGoOn) {
  for (const auto* num_ranks : {"1", "2"}) {
    const auto out = std::string("y") + num_ranks + ".npy";
    const auto command = start_slow(out, num_ranks, kNumSamples / 2);
    command->signal(SIGINT);
    const auto stopped = command->wait();
    EXPECT_EQ(stopped.exit_code, 128 + SIGINT) << stopped.err;
    EXPECT_THAT(stopped.err, ContainsRegex("stopped after [0-9]+ of 1500 samples; to go on: yoke infer slow.pt --input "
                                           "x.safetensors --out " +
                                           out + " --batch-size 8 -n [12] --resume"));
    EXPECT_GT(samples_in(path(out + ".progress")), 0);
    ASSERT_FALSE(fs::exists(path(out)));
  }
  // The batch size is that of the run to resume.
  const auto resumed = run({"slow.pt", "--input", "x.safetensors", "--out", "y2.npy", "-n", "2", "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("batches of 8"));
  EXPECT_THAT(resumed.out, ContainsRegex("1500 samples in .*, [0-9]+ of them in earlier runs"));
  // Another model is not the same run.
  const auto other = run({"m.pt", "--input", "x.safetensors", "--out", "y1.npy", "-n", "1", "--resume"});
  EXPECT_EQ(other.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(other.err, HasSubstr("the run to resume was of 'slow.pt ("));
}

TEST_F(Infer, BadImagesAreCountedAndNamed) {
  const std::vector<uint8_t> grey(8 * 8 * 3, 128);
  const auto png = encode_png(grey, 8, 8, 3);
  for (int i = 0; i < 9; ++i) folder_.write("photos/" + std::to_string(i) + ".png", i == 4 ? png.substr(0, 40) : png);
  for (const auto* name : {"a.webp", "b/c.bmp", "d.tif", "e.txt"}) folder_.write(std::string("photos/") + name, "");
  save("mean.pt", "return x.mean((1, 2, 3)).reshape(-1, 1)\n");
  for (const auto* num_ranks : {"1", "2"}) {
    const auto out = std::string("y") + num_ranks + ".jsonl";
    const auto result = run({"mean.pt", "--input", "photos", "--out", out, "-n", num_ranks, "--size", "8",
                             "--normalize", "none", "--batch-size", "2"});
    EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kDataLoss));
    EXPECT_THAT(result.err, AllOf(HasSubstr("4 files in photos left out (a.webp, b/c.bmp, d.tif, ...): samples are"),
                                  HasSubstr("9 images as [3, 8, 8]"), HasSubstr("bad sample 4 (4.png): "),
                                  HasSubstr("1 of 9 samples could not be read; " + out)));
    const auto lines = read_file(path(out));
    EXPECT_THAT(lines, HasSubstr("{\"sample\": 3, \"name\": \"3.png\", \"output\": [0.5019608]}\n"
                                 "{\"sample\": 4, \"name\": \"4.png\", \"error\": "));
  }
  EXPECT_EQ(read_file(path("y1.jsonl")), read_file(path("y2.jsonl")));
  const auto json = nlohmann::json::parse(
      run({"mean.pt", "--input", "photos", "--out", "y.jsonl", "-n", "1", "--size", "8", "--batch-size", "2", "--json"})
          .out);
  EXPECT_EQ(json["num_left_out"], 4);
  EXPECT_EQ(json["left_out"], nlohmann::json({"a.webp", "b/c.bmp", "d.tif"}));
  EXPECT_EQ(json["was_complete"], false);
}

// A network that refuses its last samples leaves a run to resume.
TEST_F(Infer, ARunOfAnInputThatHasChangedIsNotResumed) {
  save("dim.pt",
       "y = x.reshape(x.size(0), -1)\n  if bool(x.max() > 0.9):\n    y = torch.mm(y, y)\n  return y[:, :1]\n");
  const auto infer = [&](const std::string& input, const std::string& out, const std::string& more) {
    return run({"dim.pt", "--input", input, "--out", out, "-n", "1", "--batch-size", "2", "--size", "8", "--normalize",
                "none", more});
  };
  const auto png_of = [](uint8_t value) { return encode_png(std::vector<uint8_t>(8 * 8 * 3, value), 8, 8, 3); };
  for (int i = 0; i < 5; ++i) folder_.write("photos/" + std::to_string(i) + ".png", png_of(i == 4 ? 255 : 128));
  const auto numbers = torch::zeros({6, 1});
  train::write_safetensors(path("six.safetensors"), train::TensorMap{{"x", numbers}});
  numbers[5] = 1;
  train::write_safetensors(path("bright.safetensors"), train::TensorMap{{"x", numbers}});

  EXPECT_THAT(infer("photos", "a.jsonl", "--force").err, HasSubstr("cannot be multiplied"));
  EXPECT_THAT(infer("bright.safetensors", "b.jsonl", "--force").err, HasSubstr("cannot be multiplied"));
  EXPECT_EQ(samples_in(path("a.jsonl.progress")), 4);
  EXPECT_EQ(samples_in(path("b.jsonl.progress")), 4);
  EXPECT_THAT(infer("photos", "a.jsonl", "--resume").err, HasSubstr("cannot be multiplied")) << "the same files go on";

  fs::remove(path("photos/0.png"));
  folder_.write("photos/5.png", png_of(128));
  const auto folder = infer("photos", "a.jsonl", "--resume");
  EXPECT_EQ(folder.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(folder.err, AllOf(HasSubstr("the input photos has changed since the run to resume"),
                                HasSubstr("give --force instead of --resume to begin again, or another --out")));
  fs::rename(path("six.safetensors"), path("bright.safetensors"));
  EXPECT_THAT(infer("bright.safetensors", "b.jsonl", "--resume").err,
              HasSubstr("the input bright.safetensors has changed"));
  EXPECT_EQ(samples_in(path("b.jsonl.progress")), 4) << "what is there is kept";
  EXPECT_EQ(infer("bright.safetensors", "b.jsonl", "--force").exit_code, 0);

  // Nothing is known of what made a complete file.
  const auto complete = infer("photos", "b.jsonl", "--resume");
  EXPECT_THAT(complete.out, HasSubstr("b.jsonl is complete already: nothing was computed, and it is not known"));
  const auto json = nlohmann::json::parse(
      run({"dim.pt", "--input", "photos", "--out", "b.jsonl", "-n", "1", "--resume", "--json"}).out);
  EXPECT_EQ(json["was_complete"], true);
  EXPECT_TRUE(json["num_samples"].is_null() && json["num_done"].is_null() && json["batch_size"].is_null());
}

// Rank 0 fails while rank 1 waits for it, and the corrected command follows at once.
TEST_F(Infer, AFormThatDoesNotFitEndsAllRanksAndLeavesNoFile) {
  save("two.pt", "return {'a': x, 'b': x}\n");
  const std::vector<std::string> words = {"two.pt",       "--input", "x.safetensors", "-n",   "2",
                                          "--batch-size", "8",       "--out",         "y.npy"};
  const auto refused = run(words);
  EXPECT_EQ(refused.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(refused.err, AllOf(HasSubstr("choose a .safetensors file"), Not(HasSubstr("SIGKILL"))));
  EXPECT_FALSE(fs::exists(path("y.npy.partial")) || fs::exists(path("y.npy.progress")));
}

TEST_F(Infer, FindsABatchSizeAndChoosesTheTopClasses) {
  const auto result = run({"m.pt", "--input", "x.safetensors", "--out", "top.csv", "-n", "2", "--top", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("2 ranks on the CPU, batches of [0-9]+ \\(found by trying; --batch-size"));
  const auto csv = read_file(path("top.csv"));
  EXPECT_THAT(csv, HasSubstr("sample,class.0,class.1,class.2,probability.0,probability.1,probability.2\n0,"));
}

TEST_F(Infer, WrongUsesSayWhatToDo) {
  folder_.write("there.npy", "old");
  folder_.write("file", "");
  folder_.write("lines.txt", "a line\n");
  train::write_safetensors(path("narrow.safetensors"), train::TensorMap{{"input", torch::ones({20, 5})}});
  train::write_safetensors(path("weights.safetensors"), train::TensorMap{{"w", torch::ones({5})}});
  const struct {
    std::vector<std::string> words;
    ErrorCode code;
    std::string message;
  } cases[] = {
      {{"none.pt", "--input", "x.safetensors", "--out", "y.npy"}, ErrorCode::kNotFound, "MODEL: there is no none.pt"},
      {{"m.pt", "--input", "none", "--out", "y.npy"}, ErrorCode::kNotFound, "--input: there is no none"},
      {{"m.pt", "--input", "-", "--out", "y.npy"}, ErrorCode::kInvalidArgument, "ranks cannot share standard input"},
      {{"m.pt", "--input", "x.safetensors", "--out", "y.txt"}, ErrorCode::kInvalidArgument, "ends in .jsonl or .csv"},
      {{"m.pt", "--input", "x.safetensors", "--out", "there.npy"}, ErrorCode::kFailedPrecondition, "--force replaces"},
      {{"m.pt", "--input", "x.safetensors", "--out", "file/y.npy"}, ErrorCode::kNotFound, "Not a directory"},
      {{"m.pt", "--input", "x.safetensors", "--out", "y.npy", "--for", "1h"},
       ErrorCode::kInvalidArgument,
       "give --claim, too"},
      {{"m.pt", "--input", "x.safetensors", "--out", "y.npy", "--precision", "half"},
       ErrorCode::kInvalidArgument,
       "--precision half: give fp32 or bf16"},
      {{"m.pt", "--input", "x.safetensors", "--out", "y.npy", "--claim"},
       ErrorCode::kInvalidArgument,
       "give their number"},
      {{"weights.safetensors", "--input", "x.safetensors", "--out", "y.npy"},
       ErrorCode::kFailedPrecondition,
       "weights.safetensors has weights without a network"},
      {{"lines.txt", "--input", "x.safetensors", "--out", "y.npy"},
       ErrorCode::kInvalidArgument,
       "is none of the kinds of models; a model is TorchScript"},
      {{"m.pt", "--input", "lines.txt", "--out", "y.npy"}, ErrorCode::kInvalidArgument, "give --tokenizer FOLDER"},
      {{"m.pt", "--input", "narrow.safetensors", "--out", "y.npy"},
       ErrorCode::kInvalidArgument,
       "mat1 and mat2 shapes cannot be multiplied (1x5 and 64x64)"},
      {{"m.pt", "--input", "narrow.safetensors", "--out", "y.npy", "--batch-size", "4"},
       ErrorCode::kInvalidArgument,
       "m.pt refuses samples 0 to 3, input [4, 5] Float: "},
  };
  for (const auto& [words, code, message] : cases) {
    auto all = words;
    if (words.back() != "--claim") all.insert(all.end(), {"-n", "1"});
    const auto result = run(all);
    EXPECT_EQ(result.exit_code, exit_status(code)) << message << '\n' << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  EXPECT_EQ(read_file(path("there.npy")), "old");
  const auto forced = run({"m.pt", "--input", "x.safetensors", "--out", "there.npy", "--force", "-n", "1"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_THAT(read_file(path("there.npy")), HasSubstr("NUMPY"));
}

}  // namespace
}  // namespace yoke
