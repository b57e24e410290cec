// yoke/train/predict/gather_in_order.h -- the outputs of all ranks, on rank 0, in the order of the samples.
//
//     std::vector<SampleRows> own;                          // of this rank
//     for (auto& [x, y] : loader.epoch(0)) {                // a loader with .exact, in any order
//       own.push_back({loader.samples(), named_outputs(net(x))});
//     }
//     const auto all = gather_in_order(world, own);         // all.outputs[0].second is [N, ...] on rank 0
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Outputs, and the sample to which each row belongs.
struct SampleRows {
  std::vector<int64_t> samples = {};
  NamedTensors outputs = {};  ///< Each [rows, ...].
};

/// Collective. Returns the rows of all batches of all ranks on rank 0, on the CPU, sorted by sample, and nothing on
/// other ranks. Ranks may have different numbers of rows, and none. A sample that several ranks have (without
/// LoaderOptions::exact) appears once.
/// Memory  rank 0 holds all rows twice for a moment; predict() streams instead.
/// Errors  on all ranks: kInvalidArgument: batches differ in the names, dtypes or sizes of outputs, or a batch has
///         another number of rows than samples.
SampleRows gather_in_order(dist::Group& group, const std::vector<SampleRows>& batches);

}  // namespace yoke::train
