// yoke/models/image_model.h -- what all networks for images have in common, for programs that take any of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::models {

/// A network that maps images to a number for each class.
class ImageModel : public torch::nn::Module {
 public:
  /// Maps images [batch, 3, height, width], float or bfloat16, in any memory format, to logits [batch, num_classes].
  virtual at::Tensor forward(const at::Tensor& x) = 0;

  /// The names of the blocks, for FullyShardedOptions::units.
  virtual std::vector<std::string> fsdp_units() const = 0;

  /// The name of the last layer, for LoadOptions::head.
  virtual std::string head() const = 0;

  /// Weights of torchvision or timm under the names of this model, and for its size of images: what load_weights takes.
  virtual train::TensorMap adapted(train::TensorMap weights) const { return weights; }
};

}  // namespace yoke::models
