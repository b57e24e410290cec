// yoke/models/weights.h -- exchanges weights with Python's libraries: files in, files out, another number of classes.
//
//     const auto left = models::load_weights(models::read_weights("resnet50.pth"), *net, {.head = "fc"});
//     models::save_weights(world, *net, "mine.safetensors");   // Python: net.load_state_dict(load_file(...))
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class Group;
}

namespace yoke::models {

/// Reads a file of weights by name: safetensors, or a `.pt` or `.pth` of torch.save. Of the latter, the dictionary of
/// tensors may be in "state_dict", "model" or "model_state_dict", as trainers write it. "module." before all names,
/// which DistributedDataParallel leaves there, is dropped. Nothing in a file is executed. Errors  those of
/// read_safetensors and read_state_dict.
train::TensorMap read_weights(const std::filesystem::path& path);

struct LoadOptions {
  /// The name of the last layer. If its shape in the file is another one, or it is absent there, it keeps its initial
  /// values: the model has other classes.
  std::string head;
};

/// Copies weights into the model by name. Floating-point tensors are converted to the model's dtype. Batch norm's
/// num_batches_tracked may be absent, as in files before torch 0.4.1. Returns the names that kept their values.
/// Ranks   not collective, but all ranks load the same weights, before a wrapper shards the model.
/// Errors  kInvalidArgument naming the first tensor that one side lacks, or that has another shape. Then nothing is
///         copied.
std::vector<std::string> load_weights(train::TensorMap from, torch::nn::Module& model, const LoadOptions& options = {});

/// Collective. Writes the model's parameters and buffers, whole, under the names here: safetensors if the path ends so,
/// otherwise a file for torch.load(weights_only=True). Rank 0 writes and replaces the file atomically.
/// Errors  on all ranks: those of write_safetensors and write_pt.
void save_weights(dist::Group& group, const torch::nn::Module& model, const std::filesystem::path& path);

}  // namespace yoke::models
