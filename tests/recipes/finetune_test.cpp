// Tests `yoke train finetune` on its invented reviews, with the BERT that it begins with, and with a GPT-2 of
// transformers (tests/reference/transformers).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/recipes/figures.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class FinetuneRecipe : public testing::Test {
 protected:
  test::CommandOptions training(const char* num_ranks, const std::vector<std::string>& words) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "train", "finetune", "-n", num_ranks};
    argv.insert(argv.end(), words.begin(), words.end());
    return {.argv = argv, .environment = {{"OMP_NUM_THREADS", "1"}}, .folder = folder_.path()};
  }
  test::Result train(const char* num_ranks, const std::vector<std::string>& words) const {
    return test::run(training(num_ranks, words));
  }
  fs::path file(const std::string& name) const { return folder_.path(name); }
  std::vector<double> figures(const std::string& run, const std::string& column) const {
    return test::figures_of(file(run), column);
  }

  /// A GPT-2 of 12 positions and 30 tokens, with a vocabulary.
  std::string write_gpt2() const {
    fs::copy(test::reference("transformers/gpt2"), file("gpt2"));
    std::ofstream vocabulary(file("gpt2/vocab.txt"));
    vocabulary << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (const char* word :
         {"a", "ship", "in", "harbour", "is", "safe", ",", "but", "that", "not", "what", "ships", "are"}) {
      vocabulary << word << '\n';
    }
    std::ofstream lines(file("lines.txt"));
    for (int i = 0; i < 60; ++i) lines << "a ship in harbour is safe, but that is not what ships are.\n";
    return "gpt2";
  }

  test::TemporaryFolder folder_;
};

// The figure in recipes/finetune/README.md.
TEST_F(FinetuneRecipe, LearnsReviewsOnOneRankAsOnTwo) {
  for (const std::string num_ranks : {"1", "2"}) {
    const auto result = train(num_ranks.c_str(), {"--out", "ranks-" + num_ranks});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("start, 3000 texts of 2 classes (new: classifier)"));
    EXPECT_THAT(result.out, HasSubstr("model         ranks-" + num_ranks + "/model, for transformers\n"));
    EXPECT_GE(figures("ranks-" + num_ranks, "test_accuracy").back(), 0.95);
  }
  // The same reviews make a step, however many ranks share it.
  EXPECT_NEAR(figures("ranks-1", "train_loss").front(), figures("ranks-2", "train_loss").front(), 2e-3);
  const auto config = read_file(file("ranks-2/model/config.json"));
  EXPECT_THAT(config, AllOf(HasSubstr("BertForSequenceClassification"), HasSubstr("\"1\": \"positive\"")));
  EXPECT_EQ(read_file(file("ranks-2/model/vocab.txt")), read_file(file("ranks-2/start/vocab.txt")));

  // What it wrote is a network that it reads, with its classes: numbers of them are labels, too. Adapters change it.
  std::ofstream data(file("more.csv"));
  data << "label,text\n";
  for (int i = 0; i < 40; ++i) {
    data << (i % 2 == 0 ? "0,\"the film is bad, but the plot was dull.\"\n" : "1,the cast felt good.\n");
  }
  data.close();
  const auto more = train("2", {"--model", "ranks-2/model", "--data", "more.csv", "--lora", "4", "--preset", "smallest",
                                "--epochs", "2", "--batch-size", "4", "--parallel", "fsdp", "--out", "more"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("ranks-2/model, 36 texts of 2 classes, 2 ranks on the CPU, fsdp")) << "not new";
  EXPECT_GE(figures("more", "test_accuracy").back(), 0.9);
  EXPECT_THAT(read_file(file("more/model/config.json")), HasSubstr("\"1\": \"positive\""));
  EXPECT_THAT(read_file(file("more/model/model.safetensors")), Not(HasSubstr("lora"))) << "they are merged";
  EXPECT_THAT(read_file(file("more/adapter/adapter_model.safetensors")),
              AllOf(HasSubstr("\"base_model.model.bert.encoder.layer.1.attention.self.value.lora_B.weight\""),
                    HasSubstr("\"base_model.model.classifier.weight\""), Not(HasSubstr("word_embeddings"))));
}

// Oracle: an uninterrupted run. It is killed under fsdp on two ranks, and goes on under zero1 on one.
TEST_F(FinetuneRecipe, AKilledRunGoesOnWithAnotherNumberOfRanks) {
  if (std::getenv("YOKE_LONG") == nullptr) return;  // tests of gpt and images do the same with their networks
  const std::vector<std::string> exact = {"--epochs", "5", "--precision", "fp32", "--deterministic"};
  auto words = exact;
  words.insert(words.end(), {"--out", "whole"});
  const auto whole = train("1", words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  words = exact;
  words.insert(words.end(), {"--out", "killed", "--parallel", "fsdp", "--checkpoint-every", "10"});
  test::Command command(training("2", words));
  // When the second checkpoint is being written, the first one is complete.
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(file("killed/checkpoint-000000000020")); }));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 137);
  ASSERT_FALSE(fs::exists(file("killed/model"))) << "it was too fast to be killed; nothing was tested";

  const auto resumed = train("1", {"--resume", "--out", "killed", "--parallel", "zero1"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed from killed/checkpoint-"));
  EXPECT_NEAR(figures("killed", "train_loss").back(), figures("whole", "train_loss").back(), 0.02);
  EXPECT_NEAR(figures("killed", "test_accuracy").back(), figures("whole", "test_accuracy").back(), 0.03);
}

TEST_F(FinetuneRecipe, TrainsAGpt2OfTransformersAndWritesItBack) {
  const auto folder = write_gpt2();
  const auto result = train("2", {"--model", folder, "--data", "lines.txt", "--epochs", "2", "--batch-size", "4",
                                  "--out", "all", "--parallel", "zero1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("sequences of 12 tokens, 2 ranks on the CPU, zero1, 2 x 2 samples"));
  const auto written = read_file(file("all/model/model.safetensors"));
  EXPECT_THAT(written, HasSubstr("transformer.h.1.mlp.c_fc.weight"));
  EXPECT_THAT(written, Not(HasSubstr("lm_head"))) << "it is tied, and transformers expects it once";
  const auto losses = figures("all", "test_loss");
  EXPECT_LT(losses.back(), losses.front());

  const auto adapted = train("1", {"--model", folder, "--data", "lines.txt", "--epochs", "2", "--batch-size", "4",
                                   "--out", "adapted", "--lora", "2"});
  ASSERT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_THAT(adapted.out, HasSubstr("adapter       adapted/adapter, for peft\n"));
  EXPECT_LT(figures("adapted", "test_loss").back(), figures("adapted", "test_loss").front());
  const auto config = read_file(file("adapted/adapter/adapter_config.json"));
  EXPECT_THAT(config,
              AllOf(HasSubstr("\"CAUSAL_LM\""), HasSubstr("\"c_attn\""), HasSubstr("\"fan_in_fan_out\": true")));
  // The norms and embeddings of the merged network are those of the beginning, and the weights beside adapters are not.
  const auto merged = read_file(file("adapted/model/model.safetensors"));
  EXPECT_EQ(merged.size(), written.size());
  EXPECT_NE(merged, read_file(file("gpt2/model.safetensors")));
}

TEST_F(FinetuneRecipe, NamesWhatCannotBeUsed) {
  const auto folder = write_gpt2();
  const auto refusal = [&](std::vector<std::string> words, ErrorCode code) {
    const auto result = train("1", words);
    EXPECT_EQ(result.exit_code, exit_status(code)) << result.out;
    return result.err;
  };
  folder_.write("bert/config.json", read_file(test::reference("transformers/bert/config.json")));
  folder_.write("bert/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n");
  folder_.write("bert/model.safetensors", read_file(test::reference("transformers/bert/model.safetensors")));
  folder_.write("same.csv", "text,label\nword,a\nword,a\nword,a\n");
  folder_.write("bad.jsonl", "{\"text\": \"word\", \"label\": \"a\"}\n{\"text\": \"word\"}\n");
  folder_.write("llama/config.json", "{\"model_type\": \"llama\"}");
  EXPECT_THAT(refusal({"--model", "bert", "--data", "same.csv"}, ErrorCode::kInvalidArgument),
              HasSubstr("all texts in same.csv have the same label"));
  EXPECT_THAT(refusal({"--model", "bert", "--data", "bad.jsonl"}, ErrorCode::kDataLoss),
              HasSubstr("bad.jsonl:2: expected an object with text and label"));
  EXPECT_THAT(refusal({"--model", "bert", "--data", "lines.txt"}, ErrorCode::kInvalidArgument),
              HasSubstr("lines.txt: a file with labels is .csv or .jsonl"));
  EXPECT_THAT(refusal({"--model", "llama", "--data", "same.csv"}, ErrorCode::kFailedPrecondition),
              HasSubstr("of the type llama cannot be trained here"));
  folder_.write("two.csv", "text,label\nword,a\nword,b\nword,a\n");
  folder_.write("three.csv", "text,label\nword,a\nword,c\nword,b\n");
  EXPECT_THAT(refusal({"--model", "bert", "--data", "two.csv", "--test", "three.csv"}, ErrorCode::kInvalidArgument),
              HasSubstr("three.csv has the label 'c', which no text in two.csv has"));
  folder_.write("short.txt", "a ship\n");
  EXPECT_THAT(refusal({"--model", folder, "--data", "short.txt"}, ErrorCode::kInvalidArgument),
              HasSubstr("short.txt has 0 sequences to train"));
}

// Every rank finds the mistake, and one message says it.
TEST_F(FinetuneRecipe, AMistypedOptionHasOneMessageAndASuggestion) {
  const auto refusal = [&](const std::string& recipe, const std::vector<std::string>& words) {
    std::vector<std::string> argv = {YOKE_COMMAND, "train", recipe, "-n", "2"};
    argv.insert(argv.end(), words.begin(), words.end());
    const auto result = test::run({.argv = argv, .folder = folder_.path()});
    EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kInvalidArgument)) << result.err;
    const auto first = result.err.find("; see `yoke train " + recipe + " --help`");
    EXPECT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("; see `", first + 1), std::string::npos) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal("finetune", {"--modle", "x"}), HasSubstr("unknown option --modle (did you mean `--model`?)"));
  EXPECT_THAT(refusal("finetune", {"--modle", "x", "--data", "y"}), HasSubstr("unknown option --modle"));
  EXPECT_THAT(refusal("images", {"--preset", "resnet5"}), HasSubstr("(did you mean `resnet50`?)"));
  EXPECT_THAT(refusal("fashion-mnist", {"--epochs", "0"}), HasSubstr("--epochs: "));
  EXPECT_THAT(refusal("cifar", {"twelve"}), HasSubstr("unexpected argument: twelve"));
  EXPECT_THAT(refusal("gpt", {}), HasSubstr("--data is required"));
}

}  // namespace
}  // namespace yoke
