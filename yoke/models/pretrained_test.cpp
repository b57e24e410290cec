// Tests of GPT-2 and BERT with weights that Python wrote. Oracle: transformers
// (tests/reference/record_transformers.py).
#include "yoke/models/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/models/lora.h"
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

BertClassifier recorded_classifier() {
  const auto folder = recorded_model("bert-classifier");
  BertClassifier classifier(read_bert_classifier_options(folder / "config.json"));
  EXPECT_THAT(load_bert_classifier(folder, *classifier), testing::IsEmpty());
  return classifier;
}

at::Tensor logits_of(BertClassifier& classifier, const train::TensorMap& batch) {
  return classifier(batch.at("tokens"), batch.at("mask"), batch.at("types"));
}

TEST(Pretrained, AClassifierHasPythonsLogitsAndGradients) {
  auto classifier = recorded_classifier();
  EXPECT_THAT(classifier->options().labels, testing::ElementsAre("bad", "fine", "good"));
  const auto expected = expected_of("bert-classifier");
  const auto logits = logits_of(classifier, expected);
  EXPECT_TRUE(torch::allclose(logits, expected.at("logits"), 1e-4, 1e-5)) << logits << expected.at("logits");
  torch::nn::functional::cross_entropy(logits, expected.at("target")).backward();
  int count = 0;
  for (const auto& [name, parameter] : train::parameters_of(classifier)) {
    auto ours = parameter.grad();
    // Python gives the vector of [PAD] no gradient. Here it has none either, where only padding has that token.
    if (name == "bert.embeddings.word_embeddings.weight") ours.select(0, 0).zero_();
    EXPECT_TRUE(torch::allclose(ours, expected.at("gradient." + name), 1e-3, 1e-5)) << name;
    ++count;
  }
  EXPECT_EQ(count, 41);
}

TEST(Pretrained, AClassifierKeepsNewLayers) {
  const test::TemporaryFolder folder;
  const auto path = fs::path(folder.path());
  const auto bert = recorded_model("bert-classifier");
  auto options = read_bert_classifier_options(bert / "config.json");
  options.labels = {"bad", "good"};
  BertClassifier other(options);
  EXPECT_THAT(load_bert_classifier(bert, *other), testing::ElementsAre("classifier"));
  // Three classes of other names are other classes.
  options.labels = {"a", "b", "c"};
  BertClassifier named(options);
  const auto before = named->named_parameters()["classifier.weight"].clone();
  EXPECT_THAT(load_bert_classifier(bert, *named), testing::ElementsAre("classifier"));
  EXPECT_TRUE(torch::equal(named->named_parameters()["classifier.weight"], before));

  // A BertModel without a pooler, as one for masked tokens is.
  auto weights = train::read_safetensors(recorded_model("bert") / "model.safetensors").tensors;
  std::erase_if(weights, [](const auto& tensor) { return tensor.first.starts_with("pooler"); });
  train::write_safetensors(path / "model.safetensors", weights);
  fs::copy_file(recorded_model("bert") / "config.json", path / "config.json");
  EXPECT_THAT(read_bert_classifier_options(path / "config.json").labels, testing::IsEmpty());
  EXPECT_THAT(load_bert_classifier(path, *named), testing::ElementsAre("classifier", "bert.pooler"));
  EXPECT_TRUE(torch::equal(named->named_parameters()["bert.embeddings.LayerNorm.bias"],
                           weights.at("embeddings.LayerNorm.bias")));

  const auto classifier = recorded_classifier();
  write_bert_classifier(path / "mine", classifier->options(), train::named_tensors(*classifier));
  BertClassifier again(read_bert_classifier_options(path / "mine/config.json"));
  EXPECT_THAT(load_bert_classifier(path / "mine", *again), testing::IsEmpty());
  const auto batch = expected_of("bert-classifier");
  EXPECT_TRUE(torch::allclose(logits_of(again, batch), batch.at("logits"), 1e-4, 1e-5));
}

// Oracle: peft, whose adapter is recorded, with the logits that it gives.
TEST(Lora, IsPythonsPeftBesideABert) {
  const LoraOptions options{.rank = 3, .alpha = 5};
  auto classifier = recorded_classifier();
  add_lora(*classifier, options);
  const auto theirs = train::read_safetensors(recorded_model("bert-adapter") / "adapter_model.safetensors").tensors;
  const std::string prefix = "base_model.model.";
  train::TensorMap adapters;
  for (const auto& [name, tensor] : theirs) adapters[name.substr(prefix.size())] = tensor;
  EXPECT_THAT(train::load_matching(adapters, *classifier).unexpected, testing::IsEmpty());
  for (const auto& [name, parameter] : train::parameters_of(classifier)) {
    EXPECT_EQ(parameter.requires_grad(), adapters.contains(name)) << name;
  }
  const auto batch = expected_of("bert-classifier");
  const auto expected = expected_of("bert-adapter").at("logits");
  EXPECT_FALSE(torch::allclose(expected, batch.at("logits"), 1e-2, 1e-2)) << "adapters matter";
  EXPECT_TRUE(torch::allclose(logits_of(classifier, batch), expected, 1e-4, 1e-5));

  const auto tensors = train::named_tensors(*classifier);
  auto merged = recorded_classifier();
  train::load_module(merge_lora(tensors, options), *merged);
  EXPECT_TRUE(torch::allclose(logits_of(merged, batch), expected, 1e-4, 1e-5));

  // The files are those that peft writes.
  const test::TemporaryFolder folder;
  write_lora(folder.path(), tensors, options, "base");
  const auto ours = train::read_safetensors(fs::path(folder.path()) / "adapter_model.safetensors").tensors;
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs)
    EXPECT_TRUE(ours.contains(name) && torch::equal(ours.at(name), tensor)) << name;
  const auto json_of = [](const fs::path& path) { return nlohmann::json::parse(std::ifstream(path)); };
  auto our_config = json_of(fs::path(folder.path()) / "adapter_config.json");
  auto their_config = json_of(recorded_model("bert-adapter") / "adapter_config.json");
  for (auto* config : {&our_config, &their_config}) {  // sets in Python; peft adds other names of last layers
    std::erase_if((*config)["modules_to_save"].get_ref<nlohmann::json::array_t&>(),
                  [](const auto& name) { return name == "score"; });
    for (auto* name : {"target_modules", "modules_to_save"}) {
      auto& list = (*config)[name].get_ref<nlohmann::json::array_t&>();
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }
  their_config["base_model_name_or_path"] = "base";
  for (const auto& [name, value] : our_config.items()) EXPECT_EQ(value, their_config.at(name)) << name;
}

TEST(Pretrained, ComesBackFromItsOwnFiles) {
  const test::TemporaryFolder folder;
  const auto gpt = recorded_gpt();
  write_gpt(fs::path(folder.path()) / "gpt", gpt->options(), train::named_tensors(*gpt), 7);
  const auto config = nlohmann::json::parse(read_file(fs::path(folder.path()) / "gpt/config.json"));
  EXPECT_EQ(config["eos_token_id"], 7);
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
  config["architectures"] = {"GPT2ForSequenceClassification"};
  EXPECT_THAT(message(ErrorCode::kFailedPrecondition), HasSubstr("GPT2ForSequenceClassification\" is not supported"));
  config["architectures"] = {"GPT2LMHeadModel"};
  config.erase("n_embd");
  EXPECT_THAT(message(ErrorCode::kDataLoss), HasSubstr("n_embd is not a whole number"));
}

TEST(Pretrained, RefusesOtherTasksThanClasses) {
  const test::TemporaryFolder folder;
  const auto path = fs::path(folder.path()) / "config.json";
  auto config = nlohmann::json::parse(std::ifstream(recorded_model("bert") / "config.json"));
  config["architectures"] = {"BertForSequenceClassification"};
  config["problem_type"] = "multi_label_classification";
  std::ofstream(path) << config << std::flush;
  EXPECT_THAT(test::message_of([&] { read_bert_classifier_options(path); }, ErrorCode::kFailedPrecondition),
              HasSubstr("problem_type is \"multi_label_classification\""));
  config["problem_type"] = nullptr;
  config["id2label"] = {{"0", "LABEL_0"}};
  std::ofstream(path) << config << std::flush;
  EXPECT_THAT(test::message_of([&] { read_bert_classifier_options(path); }, ErrorCode::kFailedPrecondition),
              HasSubstr("one label"));
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
  const auto mask = torch::tensor({{true, true, false}});
  EXPECT_TRUE(torch::allclose(sentence_embeddings(vectors, mask, {.normalize = false}), torch::tensor({{3.0, 4.0}})));
  EXPECT_TRUE(torch::allclose(sentence_embeddings(vectors, mask, {.first_token = true}), torch::tensor({{1.0, 0.0}})));
  EXPECT_TRUE(torch::equal(sentence_embeddings(vectors, mask, {.first_token = true, .normalize = false}),
                           torch::tensor({{3.0F, 0.0F}})));
}

// A BertForMaskedLM has no pooler, and its names have a prefix.
TEST(Pretrained, ABertWithoutAPoolerIsReadWithoutOne) {
  const test::TemporaryFolder folder;
  const auto path = fs::path(folder.path());
  train::TensorMap weights;
  for (const auto& [name, tensor] : train::read_safetensors(recorded_model("bert") / "model.safetensors").tensors) {
    if (!name.starts_with("pooler")) weights["bert." + name] = tensor;
  }
  weights["cls.predictions.bias"] = torch::zeros(3);
  train::write_safetensors(path / "model.safetensors", weights);
  fs::copy_file(recorded_model("bert") / "config.json", path / "config.json");
  const auto options = read_bert_options(path / "config.json");
  EXPECT_FALSE(options.pooler);
  EXPECT_TRUE(read_bert_options(recorded_model("bert") / "config.json").pooler);
  Bert bert(options);
  load_bert(path, *bert);
  const auto expected = expected_of("bert");
  const auto mask = expected.at("mask");
  const auto hidden = bert(expected.at("tokens"), mask, expected.at("types"));
  EXPECT_LT(((hidden - expected.at("hidden")) * mask.unsqueeze(-1)).abs().max().item<float>(), 1e-5);
}

class SentenceFolder : public testing::Test {
 protected:
  SentenceFolder() { fs::create_directories(fs::path(folder_.path()) / "1_Pooling"); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(fs::path(folder_.path()) / name) << text;
  }
  void write_modules(const std::vector<std::string>& kinds) const {
    auto modules = nlohmann::json::array();
    for (size_t i = 0; i < kinds.size(); ++i) {
      modules.push_back({{"idx", i},
                         {"name", std::to_string(i)},
                         {"path", i == 0 ? "" : fmt::format("{}_{}", i, kinds[i])},
                         {"type", "sentence_transformers.models." + kinds[i]}});
    }
    write("modules.json", modules.dump());
  }
  SentenceOptions options() const { return read_sentence_options(folder_.path()); }
  std::string refusal() const {
    return test::message_of([&] { options(); }, ErrorCode::kFailedPrecondition);
  }
  test::TemporaryFolder folder_;
};

TEST_F(SentenceFolder, SaysHowTokensBecomeOneVector) {
  EXPECT_TRUE(options().normalize && !options().first_token) << "without modules.json";
  write("1_Pooling/config.json", R"({"word_embedding_dimension": 32})");
  write_modules({"Transformer", "Pooling"});
  EXPECT_TRUE(!options().normalize && !options().first_token);
  write_modules({"Transformer", "Pooling", "Normalize"});
  EXPECT_TRUE(options().normalize && !options().first_token);
  for (const auto* first : {R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false,
                                "pooling_mode_max_tokens": false})",
                            R"({"pooling_mode": "cls"})"}) {
    write("1_Pooling/config.json", first);
    EXPECT_TRUE(options().normalize && options().first_token) << first;
  }
}

TEST_F(SentenceFolder, RefusesOtherPoolings) {
  write_modules({"Transformer", "Pooling", "Normalize"});
  for (const std::string name : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                 "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}) {
    write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false, ")" + name + R"(": true})");
    EXPECT_THAT(refusal(), HasSubstr("1_Pooling/config.json: the pooling is " + name + ", which is not supported"));
  }
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(refusal(), HasSubstr("the pooling is pooling_mode_cls_token and pooling_mode_mean_tokens, which"));
  write("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  EXPECT_THAT(refusal(), HasSubstr("the pooling is lasttoken, which"));
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false})");
  EXPECT_THAT(refusal(), HasSubstr("the pooling is of no kind"));
}

TEST_F(SentenceFolder, RefusesOtherModules) {
  write("1_Pooling/config.json", "{}");
  write_modules({"Transformer", "Pooling", "Dense", "Normalize"});
  EXPECT_THAT(refusal(), HasSubstr("the module 2 is 'sentence_transformers.models.Dense' in '2_Dense', which is not"));
  write_modules({"Transformer", "Pooling", "Normalize", "Dense"});
  EXPECT_THAT(refusal(), HasSubstr("the module 3 is 'sentence_transformers.models.Dense'"));
  write_modules({"Transformer"});
  EXPECT_THAT(refusal(), HasSubstr("lists no Pooling"));
  write("modules.json", "{");
  EXPECT_THAT(test::message_of([&] { options(); }, ErrorCode::kDataLoss), HasSubstr("modules.json is no JSON"));
}

TEST_F(SentenceFolder, RefusesADefaultPrompt) {
  write("1_Pooling/config.json", "{}");
  write_modules({"Transformer", "Pooling"});
  write("config_sentence_transformers.json", R"({"prompts": {"query": "q: "}, "default_prompt_name": null})");
  options();
  write("config_sentence_transformers.json", R"({"prompts": {"query": "q: "}, "default_prompt_name": "query"})");
  EXPECT_THAT(refusal(), HasSubstr("default_prompt_name asks for 'q: ' before each text"));
}

TEST_F(SentenceFolder, RefusesLowerCaseForATokenizerThatKeepsUpperCase) {
  write("sentence_bert_config.json", R"({"max_seq_length": 128, "do_lower_case": true})");
  write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  options();
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THAT(refusal(), HasSubstr("do_lower_case is true, but the tokenizer keeps upper case"));
  write("sentence_bert_config.json", R"({"max_seq_length": 128, "do_lower_case": false})");
  options();
}

}  // namespace
}  // namespace yoke::models
