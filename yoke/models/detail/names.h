// yoke/models/detail/names.h -- a part of a name that has no layer of its own. Internal.
#pragma once

#include <torch/nn/module.h>

namespace yoke::models::detail {

/// A module that only holds others, and so puts its name before theirs: "layer1" of "layer1.0.conv1.weight".
class Names : public torch::nn::Module {};

}  // namespace yoke::models::detail
