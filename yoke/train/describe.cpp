#include "yoke/train/detail/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace yoke::train {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.is_nested()) return fmt::format("nested {}", c10::toString(tensor.scalar_type()));  // has no single shape
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace yoke::train
