#include "yoke/models/pretrained.h"

#include <algorithm>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/format/safetensors_index.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::models {
namespace {

namespace fs = std::filesystem;

/// A config.json whose members are named in errors.
class Config {
 public:
  explicit Config(const fs::path& path) : path_(path) {
    const auto text = read_file(path);
    json_ = SortedJson::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) throw Error(ErrorCode::kDataLoss, "{} is no JSON object", path.string());
  }

  int64_t size(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_number_integer()) {
      throw Error(ErrorCode::kDataLoss, "{}: {} is not a whole number", path_.string(), name);
    }
    return found->get<int64_t>();
  }
  int64_t size_or(const char* name, int64_t absent) const { return is_there(name) ? size(name) : absent; }

  double number_or(const char* name, double absent) const {
    if (!is_there(name)) return absent;
    if (!json_[name].is_number()) throw Error(ErrorCode::kDataLoss, "{}: {} is not a number", path_.string(), name);
    return json_[name].get<double>();
  }

  std::string text(const char* name) const {
    if (!is_there(name) || !json_[name].is_string()) {
      throw Error(ErrorCode::kDataLoss, "{}: {} is not a text", path_.string(), name);
    }
    return json_[name].get<std::string>();
  }

  /// The names in `id2label`, whose members are "0", "1", ...; those that transformers gives two classes if the file is
  /// of a classifier and names none; empty if it is of another network.
  std::vector<std::string> labels() const {
    std::vector<std::string> names;
    if (is_there("id2label")) {
      const auto& members = json_["id2label"];
      for (size_t i = 0; i < members.size(); ++i) {
        names.push_back(text_member(members, std::to_string(i).c_str()));
        if (names.back().empty()) {
          throw Error(ErrorCode::kDataLoss, "{}: id2label has no name for class {}", path_.string(), i);
        }
      }
    } else if (is_there("architectures") &&
               json_["architectures"] == SortedJson::array({"BertForSequenceClassification"})) {
      names = {"LABEL_0", "LABEL_1"};
    }
    return names;
  }

  /// Throws unless the member is absent or one of `allowed`.
  void require(const char* name, const std::vector<SortedJson>& allowed) const {
    if (!is_there(name)) return;
    for (const auto& value : allowed) {
      if (json_[name] == value) return;
    }
    throw Error(ErrorCode::kFailedPrecondition, "{}: {} is {}, which is not supported; {} is", path_.string(), name,
                json_line(json_[name]), json_line(allowed.front()));
  }

  /// Throws if the network has another head than those named.
  void require_head(const std::vector<std::string>& allowed) const {
    if (!is_there("architectures") || !json_["architectures"].is_array()) return;
    for (const auto& name : json_["architectures"]) {
      if (name.is_string() && std::ranges::find(allowed, name.get<std::string>()) != allowed.end()) continue;
      throw Error(ErrorCode::kFailedPrecondition, "{}: a network of the kind {} is not supported; {} is",
                  path_.string(), json_line(name), allowed.front());
    }
  }

 private:
  bool is_there(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }

  fs::path path_;
  SortedJson json_;
};

fs::path weights_path(const fs::path& path) {
  if (!path.empty() && !fs::is_directory(path)) return path;
  const auto index = path / "model.safetensors.index.json";
  return fs::exists(index) ? index : path / "model.safetensors";
}

bool has_pooler(const fs::path& weights) {
  return std::ranges::any_of(train::SafetensorsReader(weights).names(),
                             [](const std::string& name) { return name.ends_with("pooler.dense.weight"); });
}

/// Loads what the model has. `prefix` is that of a network with a head; the model's own names begin with it or not.
/// The layers `kept` keep their values, as do those of `optional` that the file lacks or that have another shape there.
/// Returns all that did.
std::vector<std::string> load_named(const fs::path& path, torch::nn::Module& model, std::string_view prefix,
                                    std::vector<std::string> kept = {}, const std::vector<std::string>& optional = {}) {
  const train::SafetensorsReader reader(weights_path(path));
  const auto wanted = train::by_name(train::named_tensors(model));
  train::TensorMap taken;
  for (const auto& name : reader.names()) {
    auto ours = name;
    if (!wanted.contains(ours)) ours = std::string(prefix) + name;
    if (!wanted.contains(ours) && name.starts_with(prefix)) ours = name.substr(prefix.size());
    const auto found = wanted.find(ours);
    if (found != wanted.end()) taken[ours] = reader.tensor(name).to(found->second.scalar_type());
  }
  if (taken.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{} has no tensor of the model, such as {}", path.string(),
                wanted.begin()->first);
  }
  for (const auto& layer : optional) {
    const bool is_whole = std::ranges::all_of(wanted, [&](const auto& named) {
      if (!named.first.starts_with(layer + ".")) return true;
      const auto found = taken.find(named.first);
      return found != taken.end() && found->second.sizes() == named.second.sizes();
    });
    if (!is_whole) kept.push_back(layer);
  }
  train::load_module(std::move(taken), model, {.ignore = kept});
  return kept;
}

void write_folder(const fs::path& folder, const train::NamedTensors& tensors, const SortedJson& config) {
  fs::create_directories(folder);
  auto written = train::by_name(tensors);
  if (written.contains("transformer.wte.weight")) written.erase("lm_head.weight");  // tied; transformers writes it once
  train::write_safetensors_shards(folder, written, {{"format", "pt"}});
  replace_file(folder / "config.json", json_page(config));
}

}  // namespace

GptOptions read_gpt_options(const fs::path& path) {
  const Config config(path);
  config.require("model_type", {"gpt2"});
  config.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.require("scale_attn_weights", {true});
  config.require("scale_attn_by_inverse_layer_idx", {false});
  config.require("tie_word_embeddings", {true});
  config.require("add_cross_attention", {false});
  config.require_head({"GPT2LMHeadModel", "GPT2Model"});
  return {.vocabulary_size = config.size("vocab_size"),
          .max_length = config.size("n_positions"),
          .width = config.size("n_embd"),
          .num_layers = config.size("n_layer"),
          .num_heads = config.size("n_head"),
          .hidden_width = config.size_or("n_inner", 0),
          .epsilon = config.number_or("layer_norm_epsilon", 1e-5)};
}

BertOptions read_bert_options(const fs::path& path) {
  const Config config(path);
  config.require("model_type", {"bert"});
  config.require("hidden_act", {"gelu"});
  config.require("position_embedding_type", {"absolute"});
  config.require("is_decoder", {false});
  const auto weights = weights_path(path.parent_path());
  return {.vocabulary_size = config.size("vocab_size"),
          .max_length = config.size("max_position_embeddings"),
          .num_types = config.size_or("type_vocab_size", 2),
          .width = config.size("hidden_size"),
          .num_layers = config.size("num_hidden_layers"),
          .num_heads = config.size("num_attention_heads"),
          .hidden_width = config.size("intermediate_size"),
          .epsilon = config.number_or("layer_norm_eps", 1e-12),
          .pooler = !fs::exists(weights) || has_pooler(weights)};
}

BertClassifierOptions read_bert_classifier_options(const fs::path& path) {
  const Config config(path);
  config.require("problem_type", {"single_label_classification"});
  if (config.labels().size() == 1) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{}: the network has one label, which is a regression in transformers; only classes are supported",
                path.string());
  }
  BertClassifierOptions options{.bert = read_bert_options(path), .labels = config.labels()};
  options.bert.pooler = true;
  return options;
}

std::string read_model_type(const fs::path& path) { return Config(path).text("model_type"); }

void load_gpt(const fs::path& path, GptImpl& model) { load_named(path, model, "transformer."); }
void load_bert(const fs::path& path, BertImpl& model) { load_named(path, model, "bert."); }

std::vector<std::string> load_bert_classifier(const fs::path& folder, BertClassifierImpl& model) {
  const bool is_same = Config(folder / "config.json").labels() == model.options().labels;
  if (is_same) return load_named(folder, model, "bert.", {}, {"classifier", "bert.pooler"});
  return load_named(folder, model, "bert.", {"classifier"}, {"bert.pooler"});
}

void write_gpt(const fs::path& folder, const GptOptions& o, const train::NamedTensors& tensors,
               std::optional<int64_t> end) {
  if (o.positions != Positions::kLearned) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{}: transformers has no GPT-2 with rotary positions; write the weights alone by write_safetensors",
                folder.string());
  }
  write_folder(folder, tensors,
               {{"architectures", SortedJson::array({"GPT2LMHeadModel"})},
                {"model_type", "gpt2"},
                {"activation_function", "gelu_new"},
                {"vocab_size", o.vocabulary_size},
                {"n_positions", o.max_length},
                {"n_embd", o.width},
                {"n_layer", o.num_layers},
                {"n_head", o.num_heads},
                {"n_inner", o.hidden_width > 0 ? SortedJson(o.hidden_width) : SortedJson()},
                {"layer_norm_epsilon", o.epsilon},
                {"bos_token_id", end ? SortedJson(*end) : SortedJson()},
                {"eos_token_id", end ? SortedJson(*end) : SortedJson()}});
}

namespace {

SortedJson config_of(const BertOptions& o) {
  return {{"architectures", SortedJson::array({"BertModel"})},
          {"model_type", "bert"},
          {"hidden_act", "gelu"},
          {"vocab_size", o.vocabulary_size},
          {"max_position_embeddings", o.max_length},
          {"type_vocab_size", o.num_types},
          {"hidden_size", o.width},
          {"num_hidden_layers", o.num_layers},
          {"num_attention_heads", o.num_heads},
          {"intermediate_size", o.hidden_width},
          {"layer_norm_eps", o.epsilon}};
}

}  // namespace

void write_bert(const fs::path& folder, const BertOptions& options, const train::NamedTensors& tensors) {
  write_folder(folder, tensors, config_of(options));
}

void write_bert_classifier(const fs::path& folder, const BertClassifierOptions& options,
                           const train::NamedTensors& tensors) {
  auto config = config_of(options.bert);
  config["architectures"] = SortedJson::array({"BertForSequenceClassification"});
  config["problem_type"] = "single_label_classification";
  for (size_t i = 0; i < options.labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = options.labels[i];
    config["label2id"][options.labels[i]] = i;
  }
  write_folder(folder, tensors, config);
}

}  // namespace yoke::models
