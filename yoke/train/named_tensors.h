// yoke/train/named_tensors.h -- tensors by name, in an order of their own or sorted.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace yoke::train {

/// What `module.named_parameters().pairs()` gives.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What a state or a file holds: each name once.
using TensorMap = std::map<std::string, at::Tensor>;

}  // namespace yoke::train
