// Tests of GPT-2 and BERT with weights that Python wrote. Oracle: transformers
// (tests/reference/record_transformers.py).
#include "yoke/models/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::models {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path recorded_model(const std::string& name) { return test::reference("transformers/" + name); }

train::TensorMap expected_of(const std::string& name) {
  return train::read_safetensors(recorded_model(name) / "expected.safetensors").tensors;
}

Gpt recorded_gpt() {
  Gpt gpt(read_gpt_options(recorded_model("gpt2") / "config.json"));
  load_gpt(recorded_model("gpt2"), *gpt);
  return gpt;
}

TEST(Pretrained, GptHasPythonsLogitsAndGradients) {
  auto gpt = recorded_gpt();
  const auto expected = expected_of("gpt2");
  const auto tokens = expected.at("tokens");
  const auto logits = gpt(tokens);
  EXPECT_TRUE(torch::allclose(logits, expected.at("logits"), 1e-4, 1e-5))
      << (logits - expected.at("logits")).abs().max();
  const auto shifted = logits.narrow(1, 0, 11).flatten(0, 1);
  torch::nn::functional::cross_entropy(shifted, tokens.narrow(1, 1, 11).flatten()).backward();
  int count = 0;
  for (const auto& [name, parameter] : train::distinct(train::parameters_of(gpt))) {
    const auto theirs = expected.at("gradient." + name);
    EXPECT_TRUE(torch::allclose(parameter.grad(), theirs, 1e-3, 1e-5)) << name;
    ++count;
  }
  EXPECT_EQ(count, 28);
}

TEST(Pretrained, BertHasPythonsVectors) {
  Bert bert(read_bert_options(recorded_model("bert") / "config.json"));
  load_bert(recorded_model("bert"), *bert);
  const auto expected = expected_of("bert");
  const auto mask = expected.at("mask");
  const auto hidden = bert(expected.at("tokens"), mask, expected.at("types"));
  const auto difference = ((hidden - expected.at("hidden")) * mask.unsqueeze(-1)).abs().max().item<float>();
  EXPECT_LT(difference, 1e-5);
  EXPECT_GT((bert(expected.at("tokens"), mask) - hidden).abs().max().item<float>(), 1e-2) << "types matter";

  // Padding changes nothing.
  const auto alone = bert(expected.at("tokens").narrow(0, 1, 1).narrow(1, 0, 4), at::Tensor(),
                          expected.at("types").narrow(0, 1, 1).narrow(1, 0, 4));
  EXPECT_TRUE(torch::allclose(alone[0], hidden[1].narrow(0, 0, 4), 1e-4, 1e-5));
}

TEST(Pretrained, ComesBackFromItsOwnFiles) {
  const test::TemporaryFolder folder;
  const auto gpt = recorded_gpt();
  write_gpt(fs::path(folder.path()) / "gpt", gpt->options(), train::named_tensors(*gpt));
  Gpt again(read_gpt_options(fs::path(folder.path()) / "gpt/config.json"));
  load_gpt(fs::path(folder.path()) / "gpt", *again);
  const auto ours = train::read_safetensors(fs::path(folder.path()) / "gpt/model.safetensors").tensors;
  const auto theirs = train::read_safetensors(recorded_model("gpt2") / "model.safetensors").tensors;
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_TRUE(torch::equal(ours.at(name), tensor)) << name;
  }
  Bert bert(read_bert_options(recorded_model("bert") / "config.json"));
  load_bert(recorded_model("bert"), *bert);
  write_bert(fs::path(folder.path()) / "bert", bert->options(), train::named_tensors(*bert));
  Bert other(read_bert_options(fs::path(folder.path()) / "bert/config.json"));
  load_bert(fs::path(folder.path()) / "bert", *other);
  for (const auto& [name, tensor] : train::by_name(train::named_tensors(*bert))) {
    EXPECT_TRUE(torch::equal(tensor, train::by_name(train::named_tensors(*other)).at(name))) << name;
  }
  EXPECT_THAT(test::message_of([&] { write_gpt(folder.path(), {.positions = Positions::kRotary}, {}); },
                               ErrorCode::kFailedPrecondition),
              HasSubstr("rotary"));
}

// The published files of GPT-2 have no prefix, and buffers of the attention's mask; those of a BERT with a head have
// one.
TEST(Pretrained, TakesNamesWithAndWithoutThePrefix) {
  const test::TemporaryFolder folder;
  const auto path = fs::path(folder.path()) / "model.safetensors";
  train::TensorMap stripped = {{"h.0.attn.bias", torch::ones({1, 1, 12, 12})}};
  for (const auto& [name, tensor] : train::read_safetensors(recorded_model("gpt2") / "model.safetensors").tensors) {
    stripped[name.substr(std::string("transformer.").size())] = tensor.to(torch::kHalf);
  }
  train::write_safetensors(path, stripped);
  Gpt gpt(read_gpt_options(recorded_model("gpt2") / "config.json"));
  load_gpt(path, *gpt);
  const auto expected = expected_of("gpt2");
  EXPECT_TRUE(torch::allclose(gpt(expected.at("tokens")), expected.at("logits"), 1e-2, 1e-2));

  stripped.erase("h.1.ln_2.bias");
  train::write_safetensors(path, stripped);
  EXPECT_THAT(test::message_of([&] { load_gpt(path, *gpt); }), HasSubstr("transformer.h.1.ln_2.bias"));
  train::write_safetensors(path, train::TensorMap{{"other", torch::ones(1)}});
  EXPECT_THAT(test::message_of([&] { load_gpt(path, *gpt); }), HasSubstr("no tensor of the model"));
}

TEST(Pretrained, RefusesConfigurationsThatItDoesNotCompute) {
  const test::TemporaryFolder folder;
  const auto path = fs::path(folder.path()) / "config.json";
  auto config = nlohmann::json::parse(std::ifstream(recorded_model("gpt2") / "config.json"));
  const auto message = [&](ErrorCode code) {
    std::ofstream(path) << config;
    return test::message_of([&] { read_gpt_options(path); }, code);
  };
  config["activation_function"] = "relu";
  EXPECT_THAT(message(ErrorCode::kFailedPrecondition), HasSubstr("activation_function is \"relu\""));
  config["activation_function"] = "gelu_new";
  config.erase("n_embd");
  EXPECT_THAT(message(ErrorCode::kDataLoss), HasSubstr("n_embd is not a whole number"));
}

TEST(SentenceEmbeddings, AreTheNormalisedMeanOfTokens) {
  const auto batch = pad_tokens({{2, 7, 3}, {2, 8, 9, 10, 3}, {2, 3}}, /*max_length=*/4);
  EXPECT_TRUE(torch::equal(batch.tokens, torch::tensor({{2, 7, 3, 0}, {2, 8, 9, 3}, {2, 3, 0, 0}}))) << batch.tokens;
  EXPECT_TRUE(torch::equal(batch.mask.sum(1), torch::tensor({3, 4, 2})));
  auto vectors = torch::zeros({1, 3, 2});
  vectors[0][0] = torch::tensor({3.0, 0.0});
  vectors[0][1] = torch::tensor({3.0, 8.0});
  vectors[0][2] = torch::tensor({100.0, 100.0});  // padding
  const auto mean = sentence_embeddings(vectors, torch::tensor({{true, true, false}}));
  EXPECT_TRUE(torch::allclose(mean, torch::tensor({{0.6, 0.8}}))) << mean;
}

}  // namespace
}  // namespace yoke::models
