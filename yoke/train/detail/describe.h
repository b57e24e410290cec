// yoke/train/detail/describe.h -- describes a tensor for messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace yoke::train {

/// The tensor's dtype and shape, "Float [2, 3]", or "undefined".
std::string describe(const at::Tensor& tensor);

}  // namespace yoke::train
