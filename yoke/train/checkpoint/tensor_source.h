// yoke/train/checkpoint/tensor_source.h -- tensors that can be read in parts from memory, from a file, or from the
// files of several ranks.
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
  /// Returns elements [first, first + length) of the flattened tensor: 1-D, on any device. The result may be a view of
  /// the source's memory, so do not write to it.
  std::function<at::Tensor(const std::string& name, int64_t first, int64_t length)> read;
  std::string what = "the state";  ///< Used in messages.
};

TensorSource source_of(TensorMap whole);

/// The tensors named "PART/...", without this prefix, which ends with `separator`.
TensorSource part_of(const TensorSource& source, const std::string& part, char separator = '/');

/// Reads one tensor, with its shape. REQUIRES: the source has it.
at::Tensor read_whole(const TensorSource& source, const std::string& name);

/// Copies all tensors to the CPU. The copies may outlive the source.
TensorMap read_whole(const TensorSource& source);

int64_t num_elements(const std::vector<int64_t>& shape);

/// Returns a text such as "Float [2, 3]"; see describe.h.
std::string describe(at::ScalarType dtype, const std::vector<int64_t>& shape);

}  // namespace yoke::train
