// yoke/train/predict/detail/gather_parts.h -- brings one part of predictions from each rank to rank 0.
#pragma once

#include <vector>

#include "yoke/train/predict/predictions.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train::detail {

/// Collective. Returns the parts of all ranks by rank, with outputs on the CPU, on rank 0, and nothing on other ranks.
/// The parts may differ in everything. Names are not sent, because rank 0 has the same source.
/// Errors  kInvalidArgument, reported to the other ranks: an output has a dtype that safetensors lacks (names it).
std::vector<Predictions> gather_parts(dist::Group& group, Predictions own);

/// Throws kInvalidArgument unless each output has a row for each of `num_rows` samples.
void check_rows(const NamedTensors& outputs, int64_t num_rows);

/// Joins outputs of several batches. Errors  kInvalidArgument: names, dtypes or sizes of rows differ.
NamedTensors join_outputs(const std::vector<NamedTensors>& batches);

}  // namespace yoke::train::detail
