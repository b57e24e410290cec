// yoke/dist/same_on_all_ranks.h -- checks that the tensors of all ranks have the same names, shapes and dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "yoke/dist/group.h"

namespace yoke::dist {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Collective. Compares names, shapes, strides, dtypes and requires_grad, in order, with those of the group's first
/// rank. Does not compare values. Also compares `options`, a line with other settings that affect communication.
/// Errors  kInvalidArgument on every rank, with the same text: the first rank that differs and the first difference.
void check_same_on_all_ranks(Group& group, const NamedTensors& tensors, const std::string& options = {});

/// Pure. One line per tensor, such as "weight Float [8, 3] trained"; adds the strides if it is not contiguous.
std::string describe_tensors(const NamedTensors& tensors);

/// Pure. Describes the first line in which `other` differs from `reference`, the description by `reference_rank`.
/// Returns an empty text if they are equal.
std::string first_difference(const std::string& reference, const std::string& other, int64_t reference_rank = 0);

}  // namespace yoke::dist
