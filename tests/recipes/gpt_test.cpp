// Tests `yoke train gpt`: a page of text is learned by heart and given back, and a run that was killed goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr const char* kPage =
    "A ship in harbour is safe, but that is not what ships are built for. The captain looked at the grey water, "
    "counted "
    "seven gulls on the rail, and turned the key of the chart room twice before he went to find the engineer.\n";

class GptRecipe : public testing::Test {
 protected:
  GptRecipe() { std::ofstream(page_) << kPage; }

  test::CommandOptions training(const char* num_ranks, const std::vector<std::string>& words) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "train",        "gpt",      "-n",       num_ranks,
                                     "--data",     page_.string(), "--preset", "paragraph"};
    argv.insert(argv.end(), words.begin(), words.end());
    return {.argv = argv, .folder = folder_.path()};
  }
  test::Result train(const char* num_ranks, const std::vector<std::string>& words) const {
    return test::run(training(num_ranks, words));
  }
  fs::path file(const std::string& name) const { return fs::path(folder_.path()) / name; }

  test::TemporaryFolder folder_;
  fs::path page_ = fs::path(folder_.path()) / "page.txt";
};

// The prompt is the page's beginning, and the most likely tokens that follow are the rest of it.
TEST_F(GptRecipe, LearnsAPageByHeartAndGoesOnWithAnotherPrompt) {
  const auto result = train("2", {"--out", "page", "--sample", "48"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("gpt: 2 ranks on the CPU, ddp, 2 x 4 samples a step"));
  const std::string page(kPage);
  EXPECT_THAT(result.out, HasSubstr("sample        " + page.substr(0, 16) + "|" + page.substr(16, 48))) << result.out;

  EXPECT_THAT(read_file(file("page/model/config.json")), HasSubstr("GPT2LMHeadModel"));

  // A finished run samples again, on any number of ranks, however it was trained.
  const auto other = train(
      "1", {"--resume", "--out", "page", "--parallel", "fsdp", "--prompt", page.substr(69, 24), "--sample", "40"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr(page.substr(69, 24) + "|" + page.substr(93, 40))) << other.out;

  // `yoke infer` gives the loss of each line: the page is likely, and another text is not.
  std::ofstream(file("lines.txt")) << page.substr(0, 60) << "\nzqj xvk wpq zzt\n";
  const auto inferred = test::run({.argv = {YOKE_COMMAND, "infer", "page", "--input", "lines.txt", "--out", "loss.csv",
                                            "-n", "1", "--batch-size", "2"},
                                   .folder = folder_.path()});
  ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
  const auto csv = read_file(file("loss.csv"));
  double known = 9, unknown = 0;
  ASSERT_EQ(std::sscanf(csv.c_str(), "sample,loss\n0,%lf\n1,%lf", &known, &unknown), 2) << csv;
  EXPECT_LT(known, 0.5);
  EXPECT_GT(unknown, 3);
}

// Oracle: an uninterrupted run. It is killed under fsdp on two ranks, and goes on under zero1 on one.
TEST_F(GptRecipe, AKilledRunGoesOnWithAnotherNumberOfRanks) {
  const std::vector<std::string> exact = {"--epochs",    "1",    "--batch-size",    "4",           "--sample", "0",
                                          "--precision", "fp32", "--deterministic", "--positions", "rotary"};
  auto words = exact;
  words.insert(words.end(), {"--out", "whole"});
  const auto whole = train("1", words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  words = exact;
  words.insert(words.end(), {"--out", "killed", "--parallel", "fsdp", "--checkpoint-every", "20"});
  test::Command command(training("2", words));
  // When the second checkpoint is being written, the first one is complete.
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(file("killed/checkpoint-000000000040")); }));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 137);
  ASSERT_FALSE(fs::exists(file("killed/checkpoint-000000000100")))
      << "it was too fast to be killed; nothing was tested";

  const auto resumed = train("1", {"--resume", "--out", "killed", "--parallel", "zero1", "--sample", "0"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, ContainsRegex("resumed from killed/checkpoint-0+[2-8]0 at epoch 1, step [2-8]0"));
  const auto loss_of = [&](const char* run) {
    const auto csv = read_file(file(run) / "metrics.csv");
    const auto row = csv.substr(csv.find('\n') + 1);
    return std::stod(row.substr(row.find(',') + 1));
  };
  EXPECT_NEAR(loss_of("killed"), loss_of("whole"), 0.1) << "the loss begins at 5.6";
  EXPECT_LT(loss_of("whole"), 4);
}

TEST_F(GptRecipe, RefusesWhatCannotBeTrained) {
  std::ofstream(file("short.txt")) << "too short";
  const auto brief = train("1", {"--data", file("short.txt").string()});
  EXPECT_EQ(brief.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(brief.err, HasSubstr("short.txt has 9 tokens, and this preset needs at least 65"));
  const auto missing = train("1", {"--tokenizer", "/nowhere"});
  EXPECT_EQ(missing.exit_code, exit_status(ErrorCode::kNotFound));
  EXPECT_THAT(missing.err, HasSubstr("there is no tokenizer /nowhere"));
}

}  // namespace
}  // namespace yoke
