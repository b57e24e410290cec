// yoke/train/checkpoint/detail/replica.h -- a tensor of a training's state that other ranks hold too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::train::detail {

struct Replica {
  std::string name;  ///< "PART/NAME"
  at::Tensor values;
  std::vector<int64_t> ranks;  ///< The ranks of the World that hold it.
  int64_t first = 0;           ///< Of a part of a divided tensor: its first element.
  bool is_option = false;      ///< A number for each of an optimizer's groups, such as "lr".
};

}  // namespace yoke::train::detail
