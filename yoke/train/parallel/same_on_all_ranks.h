// yoke/train/parallel/same_on_all_ranks.h -- do all ranks hold tensors of the same names, shapes and types?
#pragma once

#include <string>

#include "yoke/train/named_tensors.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

/// Collective. Compares names, shapes, strides, dtypes and requires_grad, in order, with those of rank 0; not the
/// values. Also `options`, a line of what else decides about communication. Errors  InvalidArgument on every rank, with
/// the same text: the first rank that differs and the first difference.
void check_same_on_all_ranks(dist::World& world, const NamedTensors& tensors, const std::string& options = {});

/// Pure: one line a tensor, as "weight Float [8, 3] trained"; with the strides of one that is not contiguous.
std::string describe_tensors(const NamedTensors& tensors);

/// Pure: the first line in which the descriptions differ, in words; empty when they are equal.
std::string first_difference(const std::string& rank_zero, const std::string& other);

}  // namespace yoke::train
