// yoke/train/named_tensors.h -- parameters in their order, each with its name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace yoke::train {

/// What `module.named_parameters().pairs()` gives.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace yoke::train
