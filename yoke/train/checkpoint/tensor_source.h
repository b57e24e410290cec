// yoke/train/checkpoint/tensor_source.h -- tensors that can be read in parts, wherever they are: in memory, in a file,
// or in the files of several ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct TensorSource {
  struct Whole {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Whole> tensors;
  /// Elements [first, first + length) of a tensor's contiguous order: 1-D, on any device. It may view the source's own
  /// memory, so nobody writes to it.
  std::function<at::Tensor(const std::string& name, int64_t first, int64_t length)> read;
  std::string what = "the state";  ///< For messages.
};

TensorSource source_of(TensorMap whole);

/// The tensors of "PART/..." without the part.
TensorSource part_of(const TensorSource& source, const std::string& part);

/// One tensor in its shape. REQUIRES: the source has it.
at::Tensor read_whole(const TensorSource& source, const std::string& name);

/// All of them, on the CPU: copies, which the source need not outlive.
TensorMap read_whole(const TensorSource& source);

int64_t num_elements(const std::vector<int64_t>& shape);

/// "Float [2, 3]", as describe.h has it.
std::string describe(at::ScalarType dtype, const std::vector<int64_t>& shape);

}  // namespace yoke::train
