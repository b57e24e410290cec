// yoke/models/pretrained.h -- the files of Hugging Face's transformers: GPT-2 and BERT from a folder with config.json
// and model.safetensors, and back.
//
//     models::Gpt gpt(models::read_gpt_options("gpt2/config.json"));
//     models::load_gpt("gpt2/model.safetensors", *gpt);
//     ... train ...
//     const auto tensors = train::gather_tensors(world, train::named_tensors(*gpt));
//     if (world.rank() == 0) models::write_gpt("mine", gpt->options(), tensors);
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/models/bert.h"
#include "yoke/models/gpt.h"
#include "yoke/train/named_tensors.h"

namespace yoke::models {

/// Reads a config.json. `dropout` stays 0: set it to train. A BERT is without a pooler if the weights beside the file
/// are, as those of BertForMaskedLM.
/// Errors  kNotFound; kDataLoss, with the path: a member is missing or is not what it should be; kFailedPrecondition,
///         naming the member: the file asks for another activation, scaling of attention or kind of positions.
GptOptions read_gpt_options(const std::filesystem::path& config);
BertOptions read_bert_options(const std::filesystem::path& config);
/// The labels are those of `id2label`; empty if the file is of a network without classes. There is always a pooler.
BertClassifierOptions read_bert_classifier_options(const std::filesystem::path& config);

/// Reads how a folder of sentence-transformers makes a vector of a text: its modules.json, the file of the module
/// Pooling, `default_prompt_name` and `do_lower_case`. Without modules.json it is the default of SentenceOptions.
///
/// Errors  kDataLoss, with the path; kFailedPrecondition, naming the part: another module than Transformer, Pooling and
///         Normalize, another kind of pooling than the mean and the first token, a prompt before each text, or texts
///         that the folder wants in lower case for a tokenizer that keeps upper case.
SentenceOptions read_sentence_options(const std::filesystem::path& folder);

/// "gpt2", "bert" or another value of `model_type` in a config.json. Errors  kNotFound; kDataLoss: there is none.
std::string read_model_type(const std::filesystem::path& config);

/// Loads weights into a model: a safetensors file, its index (`model.safetensors.index.json`), or a folder with either.
/// The weights may be those of the network alone or of one with a head (with the prefix "transformer." or "bert.");
/// buffers that are not weights and other heads are left out. Any floating dtype becomes that of the model.
/// Errors  kNotFound; kDataLoss; kInvalidArgument: names the first tensor that is missing or has another shape.
void load_gpt(const std::filesystem::path& path, GptImpl& model);
void load_bert(const std::filesystem::path& path, BertImpl& model);
/// Loads the folder of a classifier, or of another BERT. Its layer "classifier" is taken if its config.json has the
/// labels of the model, and otherwise keeps its initial values, as does a pooler that the file lacks. Returns the
/// layers that did: "classifier", "bert.pooler".
std::vector<std::string> load_bert_classifier(const std::filesystem::path& folder, BertClassifierImpl& model);

/// Writes config.json and model.safetensors into a folder, which is made if there is none, so that from_pretrained() of
/// GPT2LMHeadModel, BertModel and BertForSequenceClassification load them. `tensors` are named_tensors() of the model,
/// whole ones (gather_tensors). The tokenizer's files are not written: see copy_tokenizer. Errors  kFailedPrecondition:
/// transformers has no GPT-2 with rotary positions; as errno says if writing fails.
/// `end` is the token that ends a text ("<|endoftext|>"), for transformers' generate(); nullopt: there is none.
void write_gpt(const std::filesystem::path& folder, const GptOptions& options, const train::NamedTensors& tensors,
               std::optional<int64_t> end = std::nullopt);
void write_bert(const std::filesystem::path& folder, const BertOptions& options, const train::NamedTensors& tensors);
void write_bert_classifier(const std::filesystem::path& folder, const BertClassifierOptions& options,
                           const train::NamedTensors& tensors);

}  // namespace yoke::models
