// yoke/dist/same_on_all_ranks.h -- do all ranks hold tensors of the same names, shapes and types?
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
/// rank; not the values. Also `options`, a line of what else decides about communication. Errors  InvalidArgument on
/// every rank, with the same text: the first rank that differs and the first difference.
void check_same_on_all_ranks(Group& group, const NamedTensors& tensors, const std::string& options = {});

/// Pure: one line a tensor, as "weight Float [8, 3] trained"; with the strides of one that is not contiguous.
std::string describe_tensors(const NamedTensors& tensors);

/// Pure: the first line in which `other` differs from the description of `reference_rank`, in words; empty when they
/// are equal.
std::string first_difference(const std::string& reference, const std::string& other, int64_t reference_rank = 0);

}  // namespace yoke::dist
