// Networks of yoke::models: BERT for embeddings and classes, GPT for losses, and networks for images.
#include "yoke/models/pretrained.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/infer/model.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

at::Tensor only_input(const Inputs& inputs) {
  if (inputs.size() == 1) return inputs.front().second;
  throw Error(ErrorCode::kInvalidArgument, "it takes one tensor, and the input has {}", inputs.size());
}

/// The tokens of a batch and their mask, bool; all true for arrays and files of tokens.
models::PaddedTokens tokens_of(const Inputs& inputs) {
  const auto tokens = inputs.front().second.to(at::kLong);
  const bool has_mask = inputs.size() > 1;
  return {tokens, has_mask ? inputs[1].second.to(at::kBool) : at::ones_like(tokens, at::kBool)};
}

/// The tokenizer of a folder; null if it has none.
std::shared_ptr<const models::Tokenizer> tokenizer_in(const fs::path& folder) {
  for (const auto* name : {"tokenizer.json", "vocab.txt", "vocab.json"}) {
    if (fs::exists(folder / name)) return models::read_tokenizer(folder);
  }
  return nullptr;
}

/// Whether the folder is of transformers' BertForSequenceClassification.
bool has_classifier(const fs::path& folder) {
  const auto json = SortedJson::parse(read_file(folder / "config.json"), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("architectures") &&
         json["architectures"] == SortedJson::array({"BertForSequenceClassification"});
}

Model open_bert_classifier(const fs::path& folder, c10::Device device) {
  models::BertClassifier bert(models::read_bert_classifier_options(folder / "config.json"));
  const auto absent = models::load_bert_classifier(folder, *bert);
  if (!absent.empty()) {
    throw Error(ErrorCode::kDataLoss, "{}: the weights lack the layer {}, which classifying needs",
                printable(folder.string()), absent.front());
  }
  bert->to(device);
  bert->eval();
  const auto run = [bert](const Inputs& inputs) mutable {
    const auto [tokens, mask] = tokens_of(inputs);
    return train::NamedTensors{{"output", bert(tokens, mask)}};
  };
  return {.kind = "BERT that classifies",
          .run = run,
          .tokenizer = tokenizer_in(folder),
          .max_length = bert->options().bert.max_length};
}

/// What sentence-transformers cuts texts to, if the folder says it.
int64_t sentence_length(const fs::path& folder, int64_t most) {
  const auto path = folder / "sentence_bert_config.json";
  if (!fs::exists(path)) return most;
  const auto json = SortedJson::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("max_seq_length") || !json["max_seq_length"].is_number_integer()) return most;
  return std::clamp<int64_t>(json["max_seq_length"], 3, most);
}

}  // namespace

Model open_bert(const fs::path& folder, c10::Device device) {
  if (has_classifier(folder)) return open_bert_classifier(folder, device);
  models::Bert bert(models::read_bert_options(folder / "config.json"));
  models::load_bert(folder, *bert);
  const auto sentences = models::read_sentence_options(folder);
  bert->to(device);
  bert->eval();
  const auto run = [bert, sentences](const Inputs& inputs) mutable {
    const auto [tokens, mask] = tokens_of(inputs);
    return train::NamedTensors{{"embedding", models::sentence_embeddings(bert(tokens, mask), mask, sentences)}};
  };
  return {.kind = "BERT",
          .run = run,
          .tokenizer = tokenizer_in(folder),
          .max_length = sentence_length(folder, bert->options().max_length)};
}

Model open_gpt(const fs::path& folder, c10::Device device) {
  models::Gpt gpt(models::read_gpt_options(folder / "config.json"));
  models::load_gpt(folder, *gpt);
  gpt->to(device);
  gpt->eval();
  auto model = model_of_gpt(gpt);
  model.tokenizer = tokenizer_in(folder);
  return model;
}

Model model_of_gpt(models::Gpt gpt) {
  const auto length = gpt->options().max_length;
  const auto run = [gpt](const Inputs& inputs) mutable {
    const auto [tokens, mask] = tokens_of(inputs);
    const auto logits = gpt(tokens).slice(1, 0, -1);  // [batch, length - 1, vocabulary]
    const auto losses = at::cross_entropy_loss(logits.transpose(1, 2), tokens.slice(1, 1), {}, at::Reduction::None);
    const auto counted = mask.slice(1, 1).to(losses.scalar_type());  // of the tokens that are predicted
    return train::NamedTensors{{"loss", (losses * counted).sum(1) / counted.sum(1)}};
  };
  return {.kind = "GPT", .run = run, .max_length = length, .min_tokens = 2};
}

Model model_of_images(std::function<at::Tensor(const at::Tensor&)> forward, const train::ImageTransform& images) {
  const auto run = [forward = std::move(forward), images](const Inputs& inputs) {
    auto x = only_input(inputs);
    if (x.scalar_type() == at::kByte && images.normalization) {
      const auto of_channels = [&](const std::vector<double>& values) {
        return at::tensor(values, at::kFloat).to(x.device()).view({1, -1, 1, 1});
      };
      x = (x.to(at::kFloat).div(255) - of_channels(images.normalization->mean)) /
          of_channels(images.normalization->stddev);
    }
    return train::NamedTensors{{"output", forward(x.to(at::kFloat).contiguous(images.memory_format))}};
  };
  return {.kind = "network for images", .run = run, .images = images};
}

}  // namespace yoke::infer
