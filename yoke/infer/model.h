// yoke/infer/model.h -- a network from a file or folder, ready to predict.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/models/bert.h"
#include "yoke/models/gpt.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/train/data/normalization.h"
#include "yoke/train/image/image_transform.h"
#include "yoke/train/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace yoke::train {
struct StoredCheckpoint;
}

namespace yoke::infer {

/// The inputs of a batch, each [batch, ...]. Arrays have the names that they have in their file; one array alone is
/// "input". Images are "images". Text and tokens are "input_ids", int64 [batch, length], and text has
/// "attention_mask", int64, which is 0 for padding.
using Inputs = train::NamedTensors;

struct Model {
  std::string kind;  ///< "TorchScript": for people.
  /// Maps a batch on the model's device to outputs, each [batch, ...]. The caller has disabled gradients.
  std::function<train::NamedTensors(const Inputs& inputs)> run = nullptr;
  /// How images become inputs; if unset, as torchvision's evaluation does, with a side of 224.
  std::optional<train::ImageTransform> images = {};
  std::shared_ptr<const models::Tokenizer> tokenizer = nullptr;  ///< Null: it comes without one.
  int64_t max_length = 0;                                        ///< The most tokens of a sample; 0: not known.
  int64_t min_tokens = 1;                                        ///< A text with fewer is a bad sample.
  /// Whether the code was compiled for the dtype, and perhaps the batch size, that the model was exported with. Then a
  /// smaller batch is filled up with copies of its last row.
  bool is_compiled = false;
};

enum class ModelKind { kTorchScript, kAotInductor, kCheckpoint, kBert, kGpt };

/// Looks at the content. Errors  kNotFound; kFailedPrecondition, with the next step: an exported program without
/// compiled code, or weights without a network; kInvalidArgument: anything else (lists the kinds).
ModelKind kind_of(const std::filesystem::path& path);

/// Errors  with the path: kDataLoss: libtorch cannot load it; of run: see error_of_model().
Model open_torchscript(const std::filesystem::path& path, c10::Device device);
Model open_aot_inductor(const std::filesystem::path& path, c10::Device device);

/// Sentence embeddings, "embedding" [batch, width]; of transformers' BertForSequenceClassification the logits, "output"
/// [batch, labels]. The folder may have a tokenizer, and sentence_bert_config.json.
Model open_bert(const std::filesystem::path& folder, c10::Device device);
/// "loss" [batch], the mean cross-entropy of each token after the first.
Model open_gpt(const std::filesystem::path& folder, c10::Device device);
Model model_of_gpt(models::Gpt gpt);  ///< The same for a network in evaluation mode.

/// A network for images in evaluation mode. Arrays of bytes [batch, channels, height, width] are normalised, too.
Model model_of_images(std::function<at::Tensor(const at::Tensor&)> forward, const train::ImageTransform& images);

/// A checkpoint of a train::Run: a run folder's newest one, or a file or folder of that form.
/// Errors  kNotFound: the run folder has none yet; those of read_checkpoint.
train::StoredCheckpoint open_checkpoint(const std::filesystem::path& path);
/// A value that the training has fixed (train::Run::fix). Errors  kInvalidArgument: there is none of this name.
const std::string& fixed_value(const train::StoredCheckpoint& checkpoint, const std::string& name);
/// Loads part("model") into a network, moves it to the device and sets evaluation mode.
void load_network(const train::StoredCheckpoint& checkpoint, torch::nn::Module& network, c10::Device device);

/// The first lines of libtorch's messages are stacks of frames or of Python; this is the reason alone, in one line.
std::string reason_of(const std::exception& error);

}  // namespace yoke::infer
