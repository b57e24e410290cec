// yoke/train/detail/describe.h -- how messages name a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace yoke::train {

/// Its dtype and shape, "Float [2, 3]", or "undefined".
std::string describe(const at::Tensor& tensor);

}  // namespace yoke::train
